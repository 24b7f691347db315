"""The factored engine: smooth the padded input, then convolve.

If all heads share alpha and sit at the kernel's taps, the probabilities of head h at query q depend only on
its target t = q + Delta_h, and are a product of a row factor and a column factor (one factor for each axis):

    probability(k) = softmax_k(-alpha |k - t|^2) = S_row[t_1, k_1] S_col[t_2, k_2]

So head h at q reads the smoothed input S X at t, and the sum over heads with W_Delta is a convolution:

    Attention_alpha(X) = Conv_W(S_row X S_col^T),      S[t, k] = softmax_k(-alpha (k - t)^2)

``proofs/claims/computing/separability.py`` derives that softmaxes factor, ``proofs/claims/computing/factorisation.py``
smoothing before the convolution. It is exact for every alpha, stride, dilation and padding. Where every off-diagonal
entry of S rounds to zero (``Regime.is_exact``) S is the identity, is skipped, and the layer is one convolution call.

A transposed convolution smooths its stuffed input, of which S needs only the columns where x is, and convolves with
stride 1; where S is the identity, it is one transposed convolution call.

Two things save work in the soft regime. Along an axis with a single tap, the targets are the queries, so only those
rows of S are needed, and the stride is in them. And a kernel of a single tap mixes channels only, which commutes with
smoothing: Conv_W(S X) = S Conv_W(X), done on whichever side has fewer channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..bounds.rounding import factored_error
from ..heads.graphs import kept_apart
from ..heads.regime import UNREAD
from ..heads.values import AttentionLayer
from ..padded import cropped
from ..size import Size
from ..spec import ConvSpec
from ..transforms import is_traced
from .axes import without_far_keys
from .base import Cost, Engine, convolution_flops, convolution_padding, pad_as_convolution, positions_are_trained
from .convolution import Geometry, convolve, is_channels_last, laid_out_like
from .joint import JointStencil, JointTable, joint_forms
from .passes import Axis, Passes, cheapest_passes, stencils_are_fast
from .stencil import keys_read
from .transposed import convolve_transposed


class FactoredEngine(Engine):
    """Smoothing along every axis, then the convolution of the same kernel."""

    name: ClassVar[str] = "factored"
    summary: ClassVar[str] = "the proven rewriting: smooth the input with the attention's own softmax, then convolve"

    def refusal(self, layer: AttentionLayer) -> str | None:
        """It needs heads at the kernel's taps, one alpha for all, quadratic scores, and positions at rest."""
        if layer.content is not None:
            return "the layer has content terms"
        if layer.axis_scores is not None:
            return "the positional scores are learned tables"
        if positions_are_trained(layer):
            return "centers or alpha require gradients, which it does not compute"
        if not layer.regime.is_read:
            return UNREAD
        if not layer.regime.at_taps:
            return "a head's centre is not at its kernel tap"
        if layer.regime.shared_alpha is None:
            return "the heads do not share one alpha"
        return None

    def cost(self, layer: AttentionLayer, size: Size, *, batch: int = 1) -> Cost:
        """The convolution, and in the soft regime two smoothing passes."""
        spec, flops = layer.spec, convolution_flops(layer.spec, size, batch=batch)
        grid = spec.padded_size(size)
        padded = batch * spec.in_channels * math.prod(grid)
        if layer.regime.is_exact:
            return Cost(flops, 0 if spec.padding_mode == "zeros" else padded * layer.weight.element_size())
        channels = batch * (spec.out_channels if _channels_first(spec) else spec.in_channels)
        flattest = min(layer.regime.alpha) if layer.regime.is_read else 0.0
        held, smoothing, lengths = padded, 0, list(grid)
        for axis, keys in enumerate(grid):
            lengths[axis] = _targets(spec, size, axis).queries
            smoothing += math.prod(lengths) * keys_read(flattest, keys, layer.regime.dtype)
            held += channels * math.prod(lengths)
        if spec.transposed:  # a convolution with stride 1
            flops = 2 * batch * math.prod(spec.output_size(size)) * spec.out_channels * _terms(spec)
        return Cost(flops + 2 * channels * smoothing, held * layer.regime.dtype.itemsize)

    def error(self, layer: AttentionLayer) -> float:
        """``rounding.factored_error``."""
        return factored_error(layer)

    def attend(self, layer: AttentionLayer, x: Tensor) -> Tensor:
        """Computes the layer."""
        spec, weight, bias = layer.spec, layer.weight, layer.bias
        if layer.regime.is_exact:
            return _convolution(spec, x, weight, bias)
        source, smoothing = pad_as_convolution(spec, x), _smoothing(layer, x)
        kernel, unmoved = layer.kernel, (0,) * spec.axes
        if _channels_first(spec):
            mixed = smoothing(convolve(source, kernel, None, Geometry.of(spec.axes, groups=spec.groups)))
            return laid_out_like(x, mixed if bias is None else mixed + bias.view(-1, *(1,) * spec.axes))
        smoothed = smoothing(source)
        if is_traced():
            smoothed = kept_apart(smoothed)
        elif smoothed.numel() < _reordered_after(spec, x, weight):
            smoothed = laid_out_like(x, smoothed)
        mixed = convolve(smoothed, kernel, bias, Geometry(_stride(spec), unmoved, spec.dilation, spec.groups))
        return laid_out_like(x, mixed)


def _convolution(spec: ConvSpec, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What is left of the layer in the exact regime."""
    if spec.transposed:
        padding = (0,) * spec.axes if spec.is_uneven else cast(tuple[int, ...], spec.padding)
        geometry = Geometry(spec.stride, padding, spec.dilation, spec.groups)
        y = convolve_transposed(x, weight, bias, geometry, spec.output_padding)
        return cropped(spec, y) if spec.is_uneven else y
    padding = convolution_padding(spec)
    geometry = Geometry(spec.stride, padding, spec.dilation, spec.groups)
    return convolve(pad_as_convolution(spec, x), weight, bias, geometry)


@dataclass(frozen=True)
class Smoothing:
    """S_row X S_col^T, and likewise along any number of axes.

    Attributes:
        attention: S along each axis, or along both axes of images at once.
        dtype: Precision it is computed in.
    """

    attention: Passes | JointStencil | JointTable
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.attention.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """Smooths images [batch, channels, *size], and gives them back in their dtype."""
        return self.attention(x.to(self.dtype)).to(x.dtype)


def smoothing_matrix(length: int, alpha: float, *, like: Tensor, targets: int | None = None, step: int = 1) -> Tensor:
    """S[t, k] = softmax_k(-alpha (k - t)^2), computed in float64.

    Args:
        length: Keys are 0, ..., length - 1.
        alpha: Locality strength.
        like: The matrix gets its device, and its dtype if that is at least float32.
        targets: Number of targets t = 0, step, 2 step, ...; by default as many as keys.
        step: Pixels between targets.

    Returns:
        [targets, length]; each row sums to 1.
    """
    keys = torch.arange(length, dtype=torch.float64, device=like.device)
    centers = step * torch.arange(length if targets is None else targets, dtype=torch.float64, device=like.device)
    scores = -alpha * (keys - centers.unsqueeze(1)).square()
    return scores.softmax(dim=-1).to(torch.promote_types(like.dtype, torch.float32))


def _smoothing(layer: AttentionLayer, x: Tensor) -> Smoothing:
    """The smoothing for inputs of a shape and a memory format, made once."""
    channels_last = x.ndim == 4 and is_channels_last(x)
    key = "smoothing", x.shape, channels_last, layer.spec.output_padding
    return layer.regime.remember(key, lambda: _make_smoothing(layer, x.shape, channels_last=channels_last))


def _make_smoothing(layer: AttentionLayer, shape: torch.Size, *, channels_last: bool) -> Smoothing:
    spec, alpha, like, dtype = layer.spec, layer.regime.alpha[0], layer.weight, layer.regime.dtype
    axes = [_targets(spec, Size(*shape[2:]), axis) for axis in range(spec.axes)]
    full = [smoothing_matrix(a.keys, alpha, like=like, targets=a.queries, step=a.stride) for a in axes]
    tables = [[without_far_keys(a.seen(table), dtype)] for a, table in zip(axes, full, strict=True)]
    images = shape[0] * (spec.out_channels if _channels_first(spec) else spec.in_channels)
    if not stencils_are_fast(like.device, dtype):
        return Smoothing(cheapest_passes(tables, None, images=(images, images)), dtype)
    stencils = [axis.stencil(alpha, 0.0, dtype) for axis in axes]
    along = [[stencil] for stencil in stencils]
    passes = cheapest_passes(tables, along, images=(images, images), channels_last=channels_last)
    if spec.axes != 2:
        return Smoothing(passes, dtype)
    joint = joint_forms([table for (table,) in tables], stencils, images=images, channels_last=channels_last)
    return Smoothing(min((passes, *joint), key=lambda form: form.cost), dtype)


def _targets(spec: ConvSpec, size: Size, axis: int) -> Axis:
    """Targets that some head reads: along an axis with a single tap the queries, else every pixel."""
    queries = Axis.of(spec, size, axis)
    return queries if spec.kernel_size[axis] == 1 else replace(queries, queries=queries.keys, start=0, stride=1)


def _stride(spec: ConvSpec) -> tuple[int, ...]:
    """The stride that is left after smoothing."""
    along = zip(spec.kernel_size, spec.query_stride, strict=True)
    return tuple(1 if taps == 1 else stride for taps, stride in along)


def _terms(spec: ConvSpec) -> int:
    """Products in the sum of an output."""
    return spec.num_heads * spec.in_channels // spec.groups


def _reordered_after(spec: ConvSpec, x: Tensor, weight: Tensor) -> int:
    """Elements that change places if the memory format of x is restored only after the convolution."""
    output = spec.output_size(Size(*x.shape[2:]))
    kernel = 0 if spec.num_heads == 1 else weight.numel()
    return x.shape[0] * spec.out_channels * math.prod(output) + kernel


def _channels_first(spec: ConvSpec) -> bool:
    return spec.num_heads == 1 and spec.out_channels < spec.in_channels
