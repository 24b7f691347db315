"""A convolution call that is right.

On a CPU torch leaves convolutions to oneDNN, and torch 2.13 (oneDNN 3.12) gets some of them wrong. They were found by
search; ``docs/verification.md`` shows each in plain torch, and says when and on which CPUs it happens. ``convolve`` is
``F.conv2d`` but for these:

* A result that is one column wide, with a stride along the columns: garbage, in half precision, of volumes, or where
  every group has one input channel. One more column is computed, from zeros appended to the image, and dropped.
* Taps that see only padding, in an image narrower than the stride, or in a volume smaller than the kernel: a crash, or
  garbage in the kernel's gradient. The image is padded before the call.
* A depthwise convolution of half precision whose kernel has many columns: the call does not return. It is computed in
  float32 too.
* A bfloat16 kernel of 8 or more columns, or with a stride of 4 or more along them, on CPUs with AMX: garbage for some
  numbers of channels, or memory written that is not the result's. It is computed in float32 and rounded once, which is
  how the certificate understands half precision.
* A bfloat16 kernel that is dilated along the rows (or planes), or reaches beyond small images: its gradient is garbage,
  or it crashes. It is computed likewise.
* The gradient of a kernel of one tap, or of its bias, in single precision, with a stride and few channels: memory that
  is not the gradient's is written, or the call does not return. Channels of zeros are appended until they fill a
  register, which changes no bit of a result in channels last.

A few integers are compared, before anything is computed. The memory format, on which the faults mostly depend too, is
left out: what compiles a graph may change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import maybe_current_level

from ..spec import reversed_pads
from .base import are_trained

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the dimensions of a batch
_HALF = (torch.bfloat16, torch.float16)
_WIDE, _FAR = 8, 4  # columns of a kernel, and its stride along them, from which bfloat16 is not left to torch
_LONGEST_DEPTHWISE = 14  # columns of a depthwise kernel, up to which half precision returns
_ONE_VECTOR = 16  # channels that fill one register

NARROW = "strided, with a result that is one column wide"
ENDLESS = "depthwise in half precision, with a kernel of many columns"
WIDE = "in bfloat16, with a kernel of many columns, or a large stride along them"
BEYOND = "padded by as many columns as the kernel spans, and an image narrower than the stride"
SMALL = "in bfloat16, dilated along the rows, or with a kernel that reaches beyond a small image"


class Geometry(NamedTuple):
    """What a convolution call is told beside its tensors, along each axis.

    Attributes:
        stride: Pixels between outputs.
        padding: Zeros that the call adds at both ends.
        dilation: Pixels between taps.
        groups: Blocks of channels that do not mix.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @classmethod
    def of(
        cls,
        axes: int,
        stride: tuple[int, ...] = (),
        padding: tuple[int, ...] = (),
        dilation: tuple[int, ...] = (),
        groups: int = 1,
    ) -> Geometry:
        """A geometry along so many axes, without what is not given."""
        return cls(stride or (1,) * axes, padding or (0,) * axes, dilation or (1,) * axes, groups)


_CONVOLUTIONS: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """``F.conv1d``, ``F.conv2d`` or ``F.conv3d``, computed another way where torch's result is not to be trusted.

    Args:
        x: [batch, in_channels, *size].
        weight: [out_channels, in_channels / groups, *kernel_size], in the dtype of x.
        bias: [out_channels], in the same dtype, or None.
        geometry: Stride, padding, dilation and groups.

    Returns:
        [batch, out_channels, *output size].
    """
    conv = _CONVOLUTIONS[weight.ndim - 3]
    if needs_precision(x, weight, geometry):
        precise = convolve(x.float(), weight.float(), None if bias is None else bias.float(), geometry)
        return precise.to(x.dtype)
    if is_overrun(x, weight, bias, geometry):
        x, weight = _with_full_register(x), _with_full_register(weight)
    if is_beyond(x, weight, geometry):
        x = F.pad(x, reversed_pads((zeros, zeros) for zeros in geometry.padding))
        geometry = geometry._replace(padding=(0,) * len(geometry.padding))
    if is_narrow(x, weight, geometry):
        wider = conv(F.pad(x, (0, geometry.stride[-1])), weight, bias, *geometry)
        return laid_out_like(x, wider[..., :-1])
    return conv(x, weight, bias, *geometry)


def known_fault(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None = None) -> str | None:
    """What makes torch's own call one that is not to be trusted, in words, or None.

    Args:
        x: As for ``convolve``.
        weight: As for ``convolve``.
        geometry: As for ``convolve``.
        size: Size of the convolved image, where it is not that of x (``transposed.py``).
    """
    if is_narrow(x, weight, geometry, size):
        return NARROW
    if is_endless(x, weight, geometry):
        return ENDLESS
    if is_beyond_in_bfloat16(x, weight, geometry, size):
        return SMALL
    if is_beyond(x, weight, geometry, size):
        return BEYOND
    return WIDE if is_wide(x, weight, geometry) else None


def is_overrun(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> bool:
    """Whether torch may write beyond its memory when it differentiates by a kernel of one tap, or by its bias.

    An exported program has torch's own gradients.
    """
    if x.dtype != torch.float32 or weight.ndim != 4 or not _is_onednns(x) or torch.compiler.is_exporting():
        return False
    has_one_tap, channels = weight.shape[2] == weight.shape[3] == 1, weight.shape[1]
    if not has_one_tap or geometry.groups > 1 or not 1 < channels < _ONE_VECTOR or max(geometry.stride) == 1:
        return False
    return are_trained(weight, *(() if bias is None else (bias,)))


def is_narrow(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None = None) -> bool:
    """Whether the result is one column wide although the stride is not 1, where torch goes wrong then.

    Exported with a width that is not fixed, torch's own convolution excludes a result of one column, so this may ask.
    """
    stride = geometry.stride[-1]
    if stride == 1 or not _is_onednns(x):
        return False
    if weight.ndim < 5 and weight.shape[1] > 1 and x.dtype not in _HALF:
        return False
    return _size(x, size)[-1] + 2 * geometry.padding[-1] - spans(weight, geometry)[-1] < stride


def is_beyond(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None = None) -> bool:
    """Whether taps that see only padding may crash the call, or leave garbage in a gradient."""
    if not _is_onednns(x) or torch.compiler.is_exporting():
        return False
    if weight.ndim == 5 and any(geometry.padding) and not _is_large(x, weight, geometry, size):
        return True
    return geometry.padding[-1] >= spans(weight, geometry)[-1] and _size(x, size)[-1] < geometry.stride[-1]


def is_endless(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether torch may never return."""
    if x.dtype not in _HALF or not _is_onednns(x) or weight.shape[-1] <= _LONGEST_DEPTHWISE:
        return False
    depthwise = weight.shape[1] == 1 and weight.shape[0] == geometry.groups <= _ONE_VECTOR
    return depthwise and geometry.stride[-1] == 1 and all(step == 1 for step in geometry.dilation)


def is_wide(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether a bfloat16 kernel has so many columns, or so large a stride along them, that torch may go wrong."""
    if x.dtype != torch.bfloat16 or not _is_onednns(x):
        return False
    return weight.shape[-1] >= _WIDE or geometry.stride[-1] >= _FAR


def needs_precision(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None = None) -> bool:
    """Whether the convolution is computed in float32 and rounded once."""
    faults = is_endless(x, weight, geometry), is_wide(x, weight, geometry)
    return any(faults) or is_beyond_in_bfloat16(x, weight, geometry, size)


def is_beyond_in_bfloat16(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None = None) -> bool:
    """Whether a bfloat16 kernel is dilated before its last axis, or reaches beyond a small image.

    In an exported program, what comes of it is torch's own.
    """
    if x.dtype != torch.bfloat16 or not _is_onednns(x) or torch.compiler.is_exporting():
        return False
    return not _is_large(x, weight, geometry, size) or any(step > 1 for step in geometry.dilation[:-1])


def _with_full_register(x: Tensor) -> Tensor:
    """Images, or a kernel, with channels of zeros appended, so that they fill a register."""
    return F.pad(x, (0, 0, 0, 0, 0, _ONE_VECTOR - x.shape[1]))


def _is_large(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None) -> bool:
    """Whether an image is at least as large as the kernel and its stride, and the padding smaller than the kernel."""
    along = zip(_size(x, size), spans(weight, geometry), geometry.stride, geometry.padding, strict=True)
    return all(length >= max(span, stride) and padding < span for length, span, stride, padding in along)


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of a pixel lie next to each other; false inside ``torch.vmap``, which does not tell."""
    last = _CHANNELS_LAST.get(x.ndim)
    return last is not None and maybe_current_level() is None and x.is_contiguous(memory_format=last)


def laid_out_like(x: Tensor, y: Tensor) -> Tensor:
    """Y in the memory format that a convolution of x gives its result."""
    last = is_channels_last(x) and not x.is_contiguous()
    return y.contiguous(memory_format=_CHANNELS_LAST[x.ndim] if last else torch.contiguous_format)


def _is_onednns(x: Tensor) -> bool:
    """Whether torch may leave a convolution of x to oneDNN; ``torch.jit.trace`` has no sizes to decide the rest by."""
    return x.is_cpu and torch._C._get_tracing_state() is None


def _size(x: Tensor, size: Sequence[int] | None) -> Sequence[int]:
    return x.shape[2:] if size is None else size


def spans(weight: Tensor, geometry: Geometry) -> tuple[int, ...]:
    """Pixels from the kernel's first tap to its last, along each axis."""
    return tuple(d * (taps - 1) + 1 for d, taps in zip(geometry.dilation, weight.shape[2:], strict=True))
