"""The convolution's own call, in a wider dtype where torch's call gives wrong numbers in silence.

On a CPU torch leaves convolutions to oneDNN, and torch 2.13 (oneDNN 3.12) gets some of them wrong.
``docs/wrong-convolutions.md`` shows each in plain torch, and says when and on which CPUs it happens:

* A result that is one column wide, with a stride along the columns: garbage, in half precision, of volumes, or where
  every group has one input channel.
* A bfloat16 kernel of 8 or more columns, or with a stride of 4 or more along them, on CPUs with AMX: garbage for some
  numbers of channels. One that is dilated before its last axis, or reaches beyond a small image: a gradient that is
  garbage.
* A volume that is padded and smaller than the kernel, or an image that is narrower than the stride and padded by as
  much as the kernel spans: garbage in the kernel's gradient.
* The gradient of a kernel of one tap in single precision, with a stride and fewer channels than a register holds:
  memory that is not the gradient's is written. Channels of zeros are appended, which change no sum.

The others are made in float64, which oneDNN does not compute, or bfloat16's in float32, and their results rounded once.
A transposed convolution is the gradient of a convolution with respect to its image, so it has the same faults, where
the image is the result. A trace records the convolution's own call, whatever the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import maybe_current_level

from ..padded import cropped
from ..spec import ConvSpec
from ..transforms import is_traced

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the dimensions of a batch
_HALF = (torch.bfloat16, torch.float16)
_WIDE, _FAR, _ONE_VECTOR = 8, 4, 16
_CONVOLUTIONS: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)

NARROW = "strided, with a result that is one column wide"
HALF = "in half precision, with a kernel of many columns, a large stride, dilated rows, or more taps than the image"
BEYOND = "padded, with a kernel or a stride that is larger than the image"
_WIDER = {NARROW: torch.float64, HALF: torch.float32, BEYOND: torch.float64}  # where torch's call is right


class Geometry(NamedTuple):
    """The arguments of a convolution's call beside its tensors, along each axis.

    Attributes:
        stride: Pixels between outputs.
        padding: Zeros that the call adds at both ends, or "same" or "valid".
        dilation: Pixels between taps.
        groups: Blocks of channels that do not mix.
    """

    stride: tuple[int, ...]
    padding: Any  # tuple[int, ...] | str, as the overloads of F.conv2d have it
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
        """A geometry along so many axes: stride 1, no padding, dilation 1 and one group where nothing is given."""
        return cls(stride or (1,) * axes, padding or (0,) * axes, dilation or (1,) * axes, groups)


def own_call(spec: ConvSpec, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The call that the convolution's class makes, with the arguments that it gives.

    Args:
        spec: Geometry.
        x: [batch, in_channels, *size], or without the batch.
        weight: [``ConvSpec.weight_shape``], in the dtype of x, or what autocast makes of both.
        bias: [out_channels], or None.

    Returns:
        [batch, out_channels, *output size], or without the batch.
    """
    geometry = Geometry(spec.stride, spec.padding, spec.dilation, spec.groups)
    if spec.transposed and spec.is_uneven:
        whole = geometry._replace(padding=(0,) * spec.axes)
        return cropped(spec, convolve_transposed(x, weight, bias, whole, spec.output_padding))
    if spec.transposed:
        return convolve_transposed(x, weight, bias, geometry, spec.output_padding)
    if spec.padding_mode != "zeros" or spec.is_uneven:
        x, geometry = spec.pad(x), geometry._replace(padding=(0,) * spec.axes)
    return convolve(x, weight, bias, geometry)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """``F.conv1d``, ``F.conv2d`` or ``F.conv3d``, in a wider dtype where torch's result is not to be trusted.

    Args:
        x: [batch, in_channels, *size], or without the batch.
        weight: [out_channels, in_channels / groups, *kernel_size], in the dtype of x.
        bias: [out_channels], in the same dtype, or None.
        geometry: Stride, padding, dilation and groups.

    Returns:
        [batch, out_channels, *output size], or without the batch.
    """
    fault = known_fault(x, weight, geometry)
    if fault is None:
        if _is_overrun(x, weight, bias, geometry):
            x, weight = (F.pad(each, (0, 0, 0, 0, 0, _ONE_VECTOR - weight.shape[1])) for each in (x, weight))
        return _CONVOLUTIONS[weight.ndim - 3](x, weight, bias, *geometry)
    dtype = _WIDER[fault]
    precise = convolve(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype), geometry)
    return laid_out_like(x, precise.to(x.dtype))


def convolve_transposed(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, output_padding: tuple[int, ...]
) -> Tensor:
    """A transposed convolution, in a wider dtype where torch's result is not to be trusted.

    Args:
        x: [batch, in_channels, *size], or without the batch.
        weight: [in_channels, out_channels / groups, *kernel_size], in the dtype of x.
        bias: [out_channels], in the same dtype, or None.
        geometry: Stride, padding, dilation and groups.
        output_padding: Outputs added at the far end of each axis.

    Returns:
        [batch, out_channels, *output size], or without the batch.
    """
    fault = None if is_traced() else known_fault(x, weight, geometry, result_size(x, weight, geometry, output_padding))
    if fault is None:
        stride, padding, dilation, groups = geometry
        return _TRANSPOSED[weight.ndim - 3](x, weight, bias, stride, padding, output_padding, groups, dilation)
    dtype = _WIDER[fault]
    precise = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    return laid_out_like(x, convolve_transposed(*precise, geometry, output_padding).to(x.dtype))


def known_fault(x: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int] | None = None) -> str | None:
    """Why torch's own call is not to be trusted, or None if it is.

    Args:
        x: As for ``convolve``.
        weight: As for ``convolve``.
        geometry: As for ``convolve``.
        size: Size of the convolved image, where it is not that of x: of a transposed convolution, its result's.
    """
    is_half, is_volume, step = x.dtype in _HALF, weight.ndim == 5, geometry.stride[-1]
    if not (is_half or is_volume or step > 1) or not x.is_cpu or x.dtype == torch.float64 or is_traced():
        return None
    lengths, reach, pads = size or x.shape[2 - weight.ndim :], spans(weight, geometry), _pads(weight, geometry)
    along = list(zip(lengths, reach, geometry.stride, map(max, pads), strict=True))
    is_large = all(length >= max(span, stride) and zeros < span for length, span, stride, zeros in along)
    is_odd = weight.shape[-1] >= _WIDE or step >= _FAR or max(geometry.dilation[:-1], default=1) > 1
    if x.dtype == torch.bfloat16 and (is_odd or not is_large):
        return HALF
    columns, span, _, zeros = along[-1]
    if (is_volume and not is_large and any(map(any, pads))) or (zeros >= span and columns < step):
        return BEYOND
    is_affected = step > 1 and (is_half or is_volume or weight.shape[1] == 1)
    return NARROW if is_affected and columns + sum(pads[-1]) - span < step else None


def _is_overrun(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> bool:
    """Whether torch may write beyond its memory when it differentiates by the kernel or the bias."""
    if max(geometry.stride) == 1 or weight.ndim != 4 or not 1 < weight.shape[1] < _ONE_VECTOR or geometry.groups > 1:
        return False
    if not x.is_cpu or x.dtype != torch.float32 or weight.shape[2:].numel() > 1 or is_traced():
        return False
    return torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad))


def _pads(weight: Tensor, geometry: Geometry) -> tuple[tuple[int, int], ...]:
    """Zeros before and after each axis."""
    if not isinstance(geometry.padding, str):
        return tuple((zeros, zeros) for zeros in geometry.padding)
    if geometry.padding == "valid":
        return ((0, 0),) * len(geometry.stride)
    return tuple(((span - 1) // 2, span // 2) for span in spans(weight, geometry))


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of a pixel lie next to each other; false inside ``torch.vmap``, which does not tell."""
    last = _CHANNELS_LAST.get(x.ndim)
    return last is not None and maybe_current_level() is None and x.is_contiguous(memory_format=last)


def laid_out_like(x: Tensor, y: Tensor) -> Tensor:
    """Y in the memory format that a convolution of x gives its result."""
    last = is_channels_last(x) and not x.is_contiguous()
    return y.contiguous(memory_format=_CHANNELS_LAST[x.ndim] if last else torch.contiguous_format)


def result_size(x: Tensor, weight: Tensor, geometry: Geometry, output_padding: tuple[int, ...]) -> tuple[int, ...]:
    """Size of a transposed convolution's result."""
    size = x.shape[2 - weight.ndim :]
    along = zip(size, geometry.stride, geometry.padding, spans(weight, geometry), output_padding, strict=True)
    return tuple((n - 1) * stride - 2 * zeros + span + added for n, stride, zeros, span, added in along)


def spans(weight: Tensor, geometry: Geometry) -> tuple[int, ...]:
    """Pixels from the kernel's first tap to its last, along each axis."""
    return tuple(d * (taps - 1) + 1 for d, taps in zip(geometry.dilation, weight.shape[2:], strict=True))
