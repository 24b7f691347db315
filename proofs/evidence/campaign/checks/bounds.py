"""Bounds on the difference of two engines that compute the same attention, wherever its heads are.

The certificate compares attention with a convolution. A layer whose centres are anywhere is no convolution; there, two
engines are compared with each other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .....convert import SelfAttention
from .....convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff
from .....convert.size import Size

_ROUNDED_PRODUCTS = 10  # in a score: four products, three sums, the head vector, the maximum; and one more


def engines_bound(layer: SelfAttention, x: Tensor) -> float:
    """Bounds the difference of two engines on an input [batch, in_channels, *size], over all outputs.

    Every output is a sum of at most heads * keys * channels products of a probability, a weight and an input, whose
    absolute values sum to at most max |x| times the absolute sum of the channel's weights. Relative to that,

    * sums, quotients and exponentials err by gamma_m in the precision of the probabilities;
    * a score sums products of at most alpha (2 reach)^2, where reach is the grid's diagonal and the distance of the
      centre from it, in double precision; an error s of a score makes one of e^(2 s) - 1 in a probability;
    * the output is rounded to the layer's precision.

    Underflow is added as an absolute error.
    """
    dtype, grid = layer.regime.dtype, layer.spec.padded_size(Size(*x.shape[2:]))
    keys = math.prod(grid)
    reach = math.hypot(*grid) + 2 * float(layer.centers.detach().abs().max())
    largest_score = float(layer.alpha.detach().max()) * (2 * reach) ** 2
    score = largest_score * gamma(_ROUNDED_PRODUCTS, unit_roundoff(torch.float64))
    terms = layer.num_heads * keys * x.shape[1] + 8 * EXP_ULPS + 2 * keys + 8
    relative = gamma(terms, unit_roundoff(dtype)) + 2 * math.expm1(2 * score)
    narrowing = unit_roundoff(x.dtype) * (1 + relative) if x.dtype != dtype else 0.0
    scale = x.abs().max().double() * layer.kernel.detach().double().abs().flatten(1).sum(1).max()
    if layer.bias is not None:
        scale = scale + layer.bias.detach().double().abs().max()
    underflow = terms * torch.finfo(dtype).smallest_normal + torch.finfo(x.dtype).smallest_normal
    return 2 * ((relative + narrowing) * float(scale) + underflow)
