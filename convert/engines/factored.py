"""The factored engine: smooth the padded input, then convolve.

If all heads share alpha and sit at the kernel's taps, the probabilities of head h at query q depend only on
its target t = q + Delta_h, and are a product of a row factor and a column factor:

    probability(k) = softmax_k(-alpha |k - t|^2) = S_row[t_1, k_1] S_col[t_2, k_2]

So head h at q reads the smoothed input S X at t, and the sum over heads with W_Delta is a convolution:

    Attention_alpha(X) = Conv_W(S_row X S_col^T),      S[t, k] = softmax_k(-alpha (k - t)^2)

``proofs/factorisation.py`` derives both, softmaxes that factor and smoothing before the convolution, by machine.
It is exact for every alpha, stride, dilation and padding. Where every off-diagonal entry of S rounds to zero
(``Regime.is_exact``) S is the identity, is skipped, and the layer is one convolution call.

Two things save work in the soft regime. Along an axis with a single tap, the targets are the queries, so only those
rows of S are needed, and the stride is in them. And a kernel of a single tap mixes channels only, which commutes with
smoothing: Conv_W(S X) = S Conv_W(X), done on whichever side has fewer channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.engines.axes import AxisTable
from conv2attn.convert.engines.base import Cost, Engine, convolution_flops, positions_are_trained
from conv2attn.convert.protocol import AttentionLayer
from conv2attn.convert.spec import ConvSpec, Size


class FactoredEngine(Engine):
    """Smoothing along rows and columns, then the convolution of the same kernel."""

    name: ClassVar[str] = "factored"
    summary: ClassVar[str] = "the proven rewriting: smooth the input with the attention's own softmax, then convolve"

    def refusal(self, layer: AttentionLayer) -> str | None:
        """It needs heads at the kernel's taps, one alpha for all, quadratic scores, and positions at rest."""
        if layer.content is not None:
            return "the layer has content terms"
        if layer.axis_scores is not None:
            return "the positional scores are learned tables"
        if not layer.regime.at_taps:
            return "a head's centre is not at its kernel tap"
        if layer.regime.shared_alpha is None:
            return "the heads do not share one finite alpha"
        if positions_are_trained(layer):
            return "centers or alpha require gradients, which it does not compute"
        return None

    def cost(self, layer: AttentionLayer, size: Size, *, batch: int = 1) -> Cost:
        """The convolution, and in the soft regime two smoothing passes."""
        spec, flops = layer.spec, convolution_flops(layer.spec, size, batch=batch)
        grid = spec.padded_size(size)
        padded = batch * spec.in_channels * grid.rows * grid.columns
        if layer.regime.is_exact:
            return Cost(flops, 0 if spec.padding_mode == "zeros" else padded * layer.weight.element_size())
        channels = batch * (spec.out_channels if _channels_first(spec) else spec.in_channels)
        rows, columns = _targets(spec, size)
        smoothing = grid.columns * rows * grid.rows + rows * columns * grid.columns
        held = padded + channels * rows * (grid.columns + columns)
        return Cost(flops + 2 * channels * smoothing, held * layer.regime.dtype.itemsize)

    def attend(self, layer: AttentionLayer, x: Tensor) -> Tensor:
        """Computes the layer."""
        spec, weight, bias = layer.spec, layer.weight, layer.bias
        if layer.regime.is_exact:
            x, padding = pad_as_convolution(spec, x)
            return F.conv2d(x, weight, bias, spec.stride, padding, spec.dilation, spec.groups)
        smoothing = _smoothing(layer, x.shape)
        padded = spec.pad(x)
        if _channels_first(spec):
            mixed = smoothing(F.conv2d(padded, weight, None, groups=spec.groups))
            return mixed if bias is None else mixed + bias.view(-1, 1, 1)
        return F.conv2d(smoothing(padded), weight, bias, _stride(spec), 0, spec.dilation, spec.groups)


def pad_as_convolution(spec: ConvSpec, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Does what ``nn.Conv2d`` does before its own padding, so that the sums come in the same order, bit for bit.

    Returns:
        The input, padded where a convolution call cannot, and the zero padding left to that call.
    """
    if spec.padding_mode != "zeros":
        return spec.pad(x), (0, 0)
    top, bottom, left, right = spec.pads
    if (top, left) != (bottom, right):
        x = F.pad(x, (0, right - left, 0, bottom - top))
    return x, (top, left)


@dataclass(frozen=True)
class Smoothing:
    """S_row X S_col^T, in at least float32.

    Attributes:
        rows: S_row, [row targets, padded rows].
        columns: S_col, [column targets, padded columns].
    """

    rows: AxisTable
    columns: AxisTable

    def __call__(self, padded: Tensor) -> Tensor:
        """Smooths images [batch, channels, rows, columns], and gives them back in their dtype."""
        precise = padded.to(self.rows.probabilities.dtype)
        return self.columns.columns_of(self.rows.rows_of(precise)).to(padded.dtype)


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


def _smoothing(layer: AttentionLayer, shape: torch.Size) -> Smoothing:
    """The smoothing for inputs of a shape, made once."""
    return layer.regime.remember(("smoothing", shape), lambda: _make_smoothing(layer, shape))


def _make_smoothing(layer: AttentionLayer, shape: torch.Size) -> Smoothing:
    spec, alpha, like = layer.spec, layer.regime.alpha[0], layer.weight
    size = Size(shape[2], shape[3])
    grid, (rows, columns) = spec.padded_size(size), _targets(spec, size)
    images = shape[0] * (spec.out_channels if _channels_first(spec) else spec.in_channels)
    row_step, column_step = (spec.stride[axis] if spec.kernel_size[axis] == 1 else 1 for axis in (0, 1))
    return Smoothing(
        AxisTable.of(smoothing_matrix(grid.rows, alpha, like=like, targets=rows, step=row_step), images * grid.columns),
        AxisTable.of(
            smoothing_matrix(grid.columns, alpha, like=like, targets=columns, step=column_step), images * rows
        ),
    )


def _targets(spec: ConvSpec, size: Size) -> Size:
    """Targets that some head reads: along an axis with a single tap the queries, else every pixel."""
    grid, output = spec.padded_size(size), spec.output_size(size)
    return Size(*(output[axis] if spec.kernel_size[axis] == 1 else grid[axis] for axis in (0, 1)))


def _stride(spec: ConvSpec) -> tuple[int, int]:
    """The stride that is left after smoothing."""
    rows, columns = (1 if spec.kernel_size[axis] == 1 else spec.stride[axis] for axis in (0, 1))
    return rows, columns


def _channels_first(spec: ConvSpec) -> bool:
    return spec.num_heads == 1 and spec.out_channels < spec.in_channels
