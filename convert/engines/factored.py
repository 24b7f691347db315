"""The factored engine: smooth the padded input, then convolve.

If all heads share alpha and sit at the kernel's taps, the probabilities of head h at query q depend only on
its target t = q + Delta_h, and are a product of a row factor and a column factor (one factor for each axis):

    probability(k) = softmax_k(-alpha |k - t|^2) = S_row[t_1, k_1] S_col[t_2, k_2]

So head h at q reads the smoothed input S X at t, and the sum over heads with W_Delta is a convolution:

    Attention_alpha(X) = Conv_W(S_row X S_col^T),      S[t, k] = softmax_k(-alpha (k - t)^2)

``proofs/claims/computing/separability.py`` derives that softmaxes factor, ``proofs/claims/computing/factorisation.py``
smoothing before the convolution. It is exact for every alpha, stride, dilation and padding. Where every off-diagonal
entry of S rounds to zero (``Regime.is_exact``) S is the identity, is skipped, and the layer is the convolution's call.

S is a constant depthwise convolution and a border's scale (``stencil.py``), or a table an axis (``axes.py``) where the
attention is very flat, in double precision on a CPU, and for a transposed convolution: it smooths its stuffed input, of
which a table needs only the columns where x is, and convolves with stride 1.

Two things save work in the soft regime. Along an axis with a single tap, the targets are the queries, so only those
rows of S are needed, and the stride is in them. And a kernel of a single tap mixes channels only, which commutes with
smoothing: Conv_W(S X) = S Conv_W(X), done on whichever side has fewer channels.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ..arguments import Size
from ..bounds.rounding import factored_error
from ..context import is_traced
from ..heads.values import LayerValues
from ..spec import ConvSpec
from . import stencil
from .axes import Axis, kept, pad_for_tables, table
from .base import Cost, Engine, convolution_flops, learned_scores
from .convolution import Geometry, convolve, laid_out_like, own_call


class FactoredEngine(Engine):
    """Smoothing along every axis, then the convolution of the same kernel."""

    name: ClassVar[str] = "factored"
    summary: ClassVar[str] = "the proven rewriting: smooth the input with the attention's own softmax, then convolve"

    def refusal(self, layer: LayerValues) -> str | None:
        """It needs heads at the kernel's taps, one alpha for all, quadratic scores, and positions at rest."""
        learned = learned_scores(layer)
        if learned is not None:
            return learned
        if not layer.regime.at_taps:
            return "a head's centre is not at its kernel tap"
        if layer.regime.shared_alpha is None:
            return "the heads do not share one alpha"
        return None

    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """The convolution, and in the soft regime a smoothing along each axis."""
        spec, flops = layer.spec, convolution_flops(layer.spec, size, batch=batch)
        grid = spec.padded_size(size)
        padded = batch * spec.in_channels * math.prod(grid)
        if layer.regime.is_exact:
            return Cost(flops, 0 if spec.padding_mode == "zeros" else padded * layer.weight.element_size())
        channels = batch * (spec.out_channels if _channels_first(spec) else spec.in_channels)
        held, smoothing, lengths = padded, 0, list(grid)
        for axis, keys in enumerate(grid):
            lengths[axis] = Axis.of_targets(spec, size, axis).queries
            smoothing += math.prod(lengths) * stencil.keys_read(min(layer.regime.alpha), keys, layer.regime.dtype)
            held += channels * math.prod(lengths)
        if spec.transposed:  # a convolution with stride 1
            terms = spec.num_heads * spec.in_channels // spec.groups
            flops = 2 * batch * math.prod(spec.output_size(size)) * spec.out_channels * terms
        return Cost(flops + 2 * channels * smoothing, held * layer.regime.dtype.itemsize)

    def error(self, layer: LayerValues) -> float:
        """``rounding.factored_error``."""
        return factored_error(layer)

    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer."""
        spec, bias = layer.spec, layer.bias
        if layer.regime.is_exact:
            return own_call(spec, x, layer.weight, bias)
        source, kernel, size = pad_for_tables(spec, x), layer.kernel, Size(*x.shape[2:])
        if _channels_first(spec):
            mixed = _smoothed(layer, convolve(source, kernel, None, Geometry.of(spec.axes, groups=spec.groups)), size)
            return laid_out_like(x, mixed if bias is None else mixed + bias.view(-1, *(1,) * spec.axes))
        along = zip(spec.kernel_size, spec.query_stride, strict=True)
        left = tuple(1 if taps == 1 else stride for taps, stride in along)  # of the stride, after smoothing
        geometry = Geometry(left, (0,) * spec.axes, spec.dilation, spec.groups)
        return laid_out_like(x, convolve(_smoothed(layer, source, size), kernel, bias, geometry))


def _smoothed(layer: LayerValues, source: Tensor, size: Size) -> Tensor:
    """S X in the images' dtype, computed in at least float32.

    Args:
        layer: The layer.
        source: What ``pad_for_tables`` made of the images, in whatever channels: [batch, channels, *pixels].
        size: Size of the layer's input.
    """
    spec, alpha, dtype = layer.spec, layer.regime.alpha[0], layer.regime.dtype
    axes = (_targets if is_traced() else _kept_targets)(spec, size)
    x = source.to(dtype)
    if not spec.transposed and stencil.is_fast(alpha, dtype, x.device):
        return stencil.smooth(x, axes, alpha).to(source.dtype)
    for number, axis in enumerate(axes):
        x = table(axis, alpha, 0.0, dtype, x.device).along(x, number)
    return _kept_apart(x).to(source.dtype)


def _targets(spec: ConvSpec, size: Size) -> tuple[Axis, ...]:
    return tuple(Axis.of_targets(spec, size, axis) for axis in range(spec.axes))


_kept_targets = kept(_targets)


def _kept_apart(x: Tensor) -> Tensor:
    """The same numbers, as the result of an operation of their own while a layer is compiled.

    Inductor (torch 2.13) fails on a view that a backward pass keeps for a convolution of symbolic size. It sees through
    a copy and a sum with zero, but not through two changes of sign, which are exact and cost nothing once compiled.
    """
    return x.neg().neg() if torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting() else x


def _channels_first(spec: ConvSpec) -> bool:
    return spec.num_heads == 1 and spec.out_channels < spec.in_channels
