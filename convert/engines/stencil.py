"""Smoothing as a convolution: the same weights for every target, rescaled near the border.

A quadratic score depends only on where the key lies relative to the target. So does its exponential, and only the sum
that normalises it notices where the image ends:

    S X = D (G * X),     g(d) = exp(-alpha d^2) / Z,     Z = sum_d exp(-alpha d^2)
    D[t] = Z / sum_{0 <= k < keys} exp(-alpha (k - t)^2)

along each axis, with D = 1 in the middle of an image. Far taps are left out of g, as many as weigh no more than u
together (``bounds.rounding.left_out``, which the certificate counts), and a few remain: a constant kernel, convolved
channel by channel. D keeps the sum over all keys. Along several axes G and D are products of one factor an axis
(``proofs/claims/computing/separability.py``), and D of one axis commutes with G of another, so D comes once, at the
end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import accumulate
from operator import mul

import torch
from torch import Tensor

from ..bounds.rounding import JOINT_TAPS, left_out
from ..context import has_numbers, is_traced
from ..heads.values import constant
from .axes import Axis, kept, known
from .convolution import Geometry, convolve

WIDEST = 31  # taps: wider kernels are slower than tables
_HAS_ONEDNN = bool(torch.backends.mkldnn.is_available())
_FLATTEST = 2.0**-6  # alpha below which kernels are wider than that


@known
def radius(alpha: float, dtype: torch.dtype) -> int:
    """The taps d = -R, ..., R that are kept: those beyond weigh at most 0.49 ``left_out`` on either side.

    A target lies on the key grid, so the sum that normalises its weights is at least 1.
    """
    if alpha < _FLATTEST:
        return WIDEST
    beyond, most = 0.0, 0.49 * left_out(dtype)
    for distance in range(math.ceil(math.sqrt(60 / alpha)), 0, -1):
        beyond += math.exp(-alpha * distance * distance)
        if beyond > most:
            return distance
    return 0


def is_fast(alpha: float, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a convolution with the stencil is how torch smooths fastest on a device."""
    if 2 * radius(alpha, dtype) + 1 > WIDEST:
        return False
    return device.type != "cpu" or (dtype == torch.float32 and _HAS_ONEDNN)


def smooth(x: Tensor, axes: Sequence[Axis], alpha: float) -> Tensor:
    """S X along every axis: one depthwise convolution an axis, or one for both axes of an image if taps are few.

    Args:
        x: Images [batch, channels, *pixels], without the zeros at both ends of an axis.
        axes: Targets and keys along each axis; between two pixels of the images lies no other key.
        alpha: Locality strength.

    Returns:
        [batch, channels, *targets].
    """
    reach, every = radius(alpha, x.dtype), tuple(range(len(axes)))
    channels = x.shape[1]
    joint = len(axes) == 2 and 2 * reach + 1 <= JOINT_TAPS
    make_kernel, make_scale = (kernel, scale) if is_traced() else (_kept_kernel, _kept_scale)
    attended = x
    for along in [every] if joint else [(number,) for number in every]:
        stride, padding, taps = ([usual] * len(axes) for usual in (1, 0, 1))
        for number in along:
            axis = axes[number]
            stride[number], padding[number], taps[number] = axis.stride, reach + axis.first, 2 * reach + 1
        g = make_kernel(weights(joint, alpha, reach), (channels, 1, *taps), x.dtype, x.device)
        attended = convolve(attended, g, None, Geometry(tuple(stride), tuple(padding), (1,) * len(axes), channels))
    return attended * make_scale(tuple(axes), alpha, x.dtype, x.device)


@known
def weights(joint: bool, alpha: float, reach: int) -> tuple[float, ...]:
    """g, or the outer product of g along both axes, row by row."""
    total = 1 + 2 * math.fsum(_bell(alpha))
    along = [math.exp(-alpha * d * d) / total for d in range(-reach, reach + 1)]
    return tuple(w * v for v in along for w in along) if joint else tuple(along)


def kernel(numbers: tuple[float, ...], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same kernel for every channel: [channels, 1, *taps]."""
    return constant(numbers, dtype, device).repeat(shape[0]).view(shape)


def scale(axes: tuple[Axis, ...], alpha: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """D, the product of one factor an axis: [*targets]."""
    found = [_along(axis, alpha, dtype, device) for axis in axes]
    return reduce(mul, [each.view(-1, *(1,) * (len(axes) - 1 - number)) for number, each in enumerate(found)])


_kept_kernel, _kept_scale = kept(kernel), kept(scale)


def _along(axis: Axis, alpha: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """D along one axis, [targets]: numbers, which are constants of a trace, or computed where sizes are symbols there.

    With h(m) = 1/2 + sum_{d = 1}^{m} exp(-alpha d^2), which stops growing at some reach, the sum that normalises the
    weights of target t is h(t) + h(keys - 1 - t).
    """
    if has_numbers(axis.keys, axis.queries):
        return constant(factors(axis.keys, axis.queries, axis.start, axis.stride, alpha), dtype, device)
    half = constant(_half_sums(alpha), torch.float64, device)
    targets = axis.start + axis.stride * torch.arange(axis.queries, device=device)
    before, after = (half[far.clamp(max=len(half) - 1)] for far in (targets, axis.keys - 1 - targets))
    return (2 * half[-1] / (before + after)).to(dtype)


@known
def factors(keys: int, queries: int, start: int, stride: int, alpha: float) -> tuple[float, ...]:
    """D along one axis, target by target."""
    half = _half_sums(alpha)
    last, targets = len(half) - 1, range(start, start + stride * queries, stride)
    return tuple(2 * half[-1] / (half[min(t, last)] + half[min(keys - 1 - t, last)]) for t in targets)


@known
def _half_sums(alpha: float) -> tuple[float, ...]:
    """h(0), h(1), ... as long as it grows in double precision."""
    return tuple(accumulate(_bell(alpha), initial=0.5))


def _bell(alpha: float) -> tuple[float, ...]:
    """exp(-alpha d^2) for d = 1, 2, ... as long as it changes a sum in double precision."""
    return tuple(math.exp(-alpha * d * d) for d in range(1, math.ceil(math.sqrt(40 / alpha)) + 1))


def keys_read(alpha: float, keys: int, dtype: torch.dtype) -> int:
    """About how many keys along one axis a query reads, in a precision: all but those that weigh next to nothing."""
    if not alpha > 0:
        return keys
    return min(2 * math.floor(math.sqrt(-math.log(left_out(dtype)) / alpha)) + 1, keys)
