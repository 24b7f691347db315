"""The factored engine: smooth the padded input, then convolve.

If all heads share alpha and sit at the kernel's taps, the probabilities of head h at query q depend only on
its target t = q + Delta_h, and are a product of a row factor and a column factor:

    probability(k) = softmax_k(-alpha |k - t|^2) = S_row[t_1, k_1] S_col[t_2, k_2]

So head h at q reads the smoothed input S X at t, and the sum over heads with W_Delta is a convolution:

    Attention_alpha(X) = Conv_W(S_row X S_col^T),      S[t, k] = softmax_k(-alpha (k - t)^2)

``proofs/factorisation.py`` derives both, softmaxes that factor and smoothing before the convolution, by machine.
It is exact for every alpha, stride, dilation and padding. Where every off-diagonal entry of S rounds to zero
(``Regime.is_exact``) S is the identity, is skipped, and the layer is one convolution call.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.engines.base import (
    Cost,
    Engine,
    convolution_flops,
    positions_are_trained,
)
from conv2attn.convert.errors import EngineError
from conv2attn.convert.protocol import AttentionLayer
from conv2attn.convert.spec import ConvSpec, Size


class FactoredEngine(Engine):
    """Smoothing along rows and columns, then the convolution of the same kernel."""

    name: ClassVar[str] = "factored"
    summary: ClassVar[str] = "the proven rewriting: smooth the input with the attention's own softmax, then convolve"

    def refusal(self, layer: AttentionLayer) -> str | None:
        """It needs heads at the kernel's taps, one alpha for all, no content terms, and positions at rest."""
        if layer.content is not None:
            return "the layer has content terms"
        if not layer.regime.at_taps:
            return "a head's centre is not at its kernel tap"
        if layer.regime.shared_alpha is None:
            return "the heads do not share one finite alpha"
        if positions_are_trained(layer):
            return "centers or alpha require gradients, which it does not compute"
        return None

    def cost(self, layer: AttentionLayer, size: Size, *, batch: int = 1) -> Cost:
        """The convolution, and in the soft regime two dense smoothing passes over the padded input."""
        flops = convolution_flops(layer.spec, size, batch=batch)
        grid, pixel_bytes = layer.spec.padded_size(size), layer.weight.element_size()
        values = batch * layer.spec.in_channels * grid.rows * grid.columns
        if layer.regime.is_exact:
            return Cost(flops, 0 if _pads_natively(layer.spec) else values * pixel_bytes)
        smoothing = 2 * values * (grid.rows + grid.columns)
        tables = grid.rows**2 + grid.columns**2
        return Cost(flops + smoothing, (3 * values + tables) * layer.regime.dtype.itemsize)

    def attend(self, layer: AttentionLayer, x: Tensor) -> Tensor:
        """Computes the layer."""
        spec = layer.spec
        if layer.regime.is_exact:
            x, padding = pad_as_convolution(spec, x)
        else:
            x, padding = smooth(spec.pad(x), _shared_alpha(layer)), (0, 0)
        return F.conv2d(x, layer.weight, layer.bias, spec.stride, padding, spec.dilation, spec.groups)


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


def smooth(padded: Tensor, alpha: float) -> Tensor:
    """S_row X S_col^T, in at least float32: [batch, channels, rows, columns], with the dtype of the input."""
    precise = padded.to(torch.promote_types(padded.dtype, torch.float32))
    rows, columns = (smoothing_matrix(length, alpha, like=precise) for length in padded.shape[-2:])
    return (rows @ precise @ columns.T).to(padded.dtype)


def smoothing_matrix(length: int, alpha: float, *, like: Tensor) -> Tensor:
    """S[t, k] = softmax_k(-alpha (k - t)^2) for t and k in 0, ..., length - 1, computed in float64.

    Args:
        length: Pixels along the axis.
        alpha: Locality strength.
        like: The matrix gets its dtype and device.

    Returns:
        [length, length]; each row sums to 1.
    """
    positions = torch.arange(length, dtype=torch.float64)
    scores = -alpha * (positions - positions.unsqueeze(1)).square()
    return scores.softmax(dim=-1).to(device=like.device, dtype=like.dtype)


def _shared_alpha(layer: AttentionLayer) -> float:
    alpha = layer.regime.shared_alpha
    if alpha is None:
        raise EngineError("the factored engine needs one finite alpha for all heads")
    return alpha


def _pads_natively(spec: ConvSpec) -> bool:
    top, bottom, left, right = spec.pads
    return spec.padding_mode == "zeros" and (top, left) == (bottom, right)
