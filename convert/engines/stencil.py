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

import torch
import torch.nn.functional as F
from torch import Tensor

from ..bounds.rounding import JOINT_KEYS, left_out
from ..heads.values import constant
from ..transforms import is_traced
from .axes import Axis, kept, known
from .convolution import is_channels_last

WIDEST = 31  # taps: wider kernels are slower than tables
_HAS_ONEDNN = bool(torch.backends.mkldnn.is_available())
_FLATTEST = 2.0**-6  # alpha below which kernels are wider than that
_JOINT = 7  # taps along an axis up to which one kernel for both axes of an image is faster than one an axis


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
    """S X along every axis.

    Args:
        x: Images [batch, channels, *pixels], without the zeros at both ends of an axis.
        axes: Targets and keys along each axis; between two pixels of the images lies no other key.
        alpha: Locality strength.

    Returns:
        [batch, channels, *targets].
    """
    reach = radius(alpha, x.dtype)
    joint = len(axes) == 2 and (2 * reach + 1 <= _JOINT or _is_kept_together(x, reach))
    attended = _jointly(x, axes, alpha, reach) if joint else _one_by_one(x, axes, alpha, reach)
    make = scale if is_traced() else _kept_scale
    return attended * make(tuple(axes), alpha, x.dtype, x.device)


def _is_kept_together(x: Tensor, reach: int) -> bool:
    return (2 * reach + 1) ** 2 <= JOINT_KEYS and is_channels_last(x) and not x.is_contiguous()


def _jointly(x: Tensor, axes: Sequence[Axis], alpha: float, reach: int) -> Tensor:
    channels, strides = x.shape[1], tuple(axis.stride for axis in axes)
    padding = tuple(reach + axis.first for axis in axes)
    return F.conv2d(x, _kernel((2,) * 2, alpha, reach, channels, x), None, strides, padding, 1, channels)


def _one_by_one(x: Tensor, axes: Sequence[Axis], alpha: float, reach: int) -> Tensor:
    """One convolution an axis, each over images of which this axis are the rows."""
    batch, channels = x.shape[:2]
    if is_traced():
        return _along_each(x, axes, alpha, reach)
    for number, axis in enumerate(axes):
        before, after = x.shape[2 : 2 + number], x.shape[3 + number :]
        lines = channels * math.prod(before)
        images = x.reshape(batch, lines, x.shape[2 + number], math.prod(after))
        kernel = _kernel((1,), alpha, reach, lines, x)
        attended = F.conv2d(images, kernel, None, (axis.stride, 1), (reach + axis.first, 0), 1, lines)
        x = attended.view(batch, channels, *before, axis.queries, *after)
    return x


def _along_each(x: Tensor, axes: Sequence[Axis], alpha: float, reach: int) -> Tensor:
    """The same without another view of the images, in which a trace would fix the number of groups or their strides."""
    convolve, channels = (F.conv1d, F.conv2d, F.conv3d)[len(axes) - 1], x.shape[1]
    for number, axis in enumerate(axes):
        stride, padding, taps = ([one] * len(axes) for one in (1, 0, 1))
        stride[number], padding[number], taps[number] = axis.stride, reach + axis.first, 2 * reach + 1
        kernel = _kernel((1,), alpha, reach, channels, x).reshape(channels, 1, *taps)
        x = convolve(x, kernel, None, stride, padding, 1, channels)
    return x


def _kernel(shape: tuple[int, ...], alpha: float, reach: int, channels: int, like: Tensor) -> Tensor:
    """G for every channel: [channels, 1, taps, taps] for two axes at once, [channels, 1, taps, 1] for one."""
    make = _make_weights if is_traced() else _kept_weights
    return make(weights(len(shape) == 2, alpha, reach), like.dtype, like.device).expand(channels, 1, -1, -1)


@known
def weights(joint: bool, alpha: float, reach: int) -> tuple[tuple[float, ...], ...]:
    """g, or the outer product of g along both axes: taps times taps, or taps times 1."""
    total = 1 + 2 * math.fsum(_bell(alpha))
    along = [math.exp(-alpha * d * d) / total for d in range(-reach, reach + 1)]
    return tuple(tuple(w * v for v in along) if joint else (w,) for w in along)


def _make_weights(numbers: tuple[tuple[float, ...], ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return constant([[numbers]], dtype, device)


def scale(axes: tuple[Axis, ...], alpha: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """D, the product of one factor an axis: [*targets]; in a trace, of whatever sizes."""
    numbers = _all_weights(alpha)
    kernel, reach, total = constant(numbers, torch.float64, device), len(numbers) // 2, math.fsum(numbers)
    offsets = torch.arange(-reach, reach + 1, device=device)
    product: Tensor | None = None
    for number, axis in enumerate(axes):
        keys = axis.start + axis.stride * torch.arange(axis.queries, device=device)[:, None] + offsets
        inside = torch.logical_and(keys >= 0, keys < axis.keys).double()
        factor = (total / (inside @ kernel)).to(dtype).view(-1, *(1,) * (len(axes) - 1 - number))
        product = factor if product is None else product * factor
    if product is None:
        raise ValueError("there must be an axis to smooth along")
    return product


_kept_scale, _kept_weights = kept(scale), kept(_make_weights)


@known
def _all_weights(alpha: float) -> tuple[float, ...]:
    """exp(-alpha d^2) for all d where it changes a sum in double precision, in order."""
    bell = _bell(alpha)
    return (*reversed(bell), 1.0, *bell)


def _bell(alpha: float) -> tuple[float, ...]:
    """exp(-alpha d^2) for d = 1, 2, ... as long as it changes a sum in double precision."""
    return tuple(math.exp(-alpha * d * d) for d in range(1, math.ceil(math.sqrt(40 / alpha)) + 1))


def keys_read(alpha: float, keys: int, dtype: torch.dtype) -> int:
    """About how many keys along one axis a query reads, in a precision: all but those that weigh next to nothing."""
    if not alpha > 0:
        return keys
    return min(2 * math.floor(math.sqrt(-math.log(left_out(dtype)) / alpha)) + 1, keys)
