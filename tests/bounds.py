"""Derived bounds that several tests compare with."""

from __future__ import annotations

from torch import Tensor

from conv2attn.convert import SelfAttention
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff


def softmax_bound(probabilities: Tensor) -> Tensor:
    """How far apart two computations of a softmax over the last two dimensions can be, if the scores are exact.

    Each is a quotient of an exponential and a sum of exponentials, and errs relatively; there are two of them.
    """
    keys = probabilities.shape[-1] * probabilities.shape[-2]
    return probabilities * 2 * gamma(4 * EXP_ULPS + keys + 2, unit_roundoff(probabilities.dtype))


def output_bound(layer: SelfAttention, x: Tensor) -> float:
    """How far apart two computations of a layer with exact scores can be, in any engine, order and grouping.

    Every output is a sum of at most heads * keys * channels products of a probability, a weight and an input, whose
    absolute values sum to at most max |x| times the absolute sum of the channel's weights.
    """
    keys = layer.spec.pad(x)[0, 0].numel()
    terms = layer.num_heads * keys * x.shape[1] + 8 * EXP_ULPS + 2 * keys + 8
    scale = x.abs().max() * layer.kernel.detach().abs().flatten(1).sum(1).max()
    if layer.bias is not None:
        scale = scale + layer.bias.detach().abs().max()
    return 2 * gamma(terms, unit_roundoff(x.dtype)) * scale.item()
