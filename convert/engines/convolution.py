"""Convolution calls: the layer's own, and those that engines make for themselves.

``own_call`` is the call of the convolution's class, with its bits, right or wrong: torch's own convolution is torch's.

``convolve`` is for an engine's own convolutions, which must be right on every processor. oneDNN, to which torch leaves
convolutions on a CPU, gets some calls wrong (``docs/wrong-convolutions.md``), by their dtype and shape. So no engine
makes a call

* in half precision: it is made in single precision, and rounded once;
* with a stride along an axis that has one output: that is the only window, of as many pixels as the kernel spans;
* of one tap with a stride: it convolves every other pixel with a stride of 1;
* that pads by as much as the kernel spans, or a volume at all: zeros are put around the image before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import maybe_current_level

from ..context import has_numbers
from ..spec import ConvSpec, reversed_pads

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the dimensions of a batch
_HALF = (torch.bfloat16, torch.float16)
_OWN = ("conv1d", "conv2d", "conv3d"), ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_CONVOLUTIONS: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


class Geometry(NamedTuple):
    """The arguments of a convolution's call beside its tensors, along each axis.

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
        """A geometry along ``axes`` axes: stride 1, no padding, dilation 1 and one group where nothing is given."""
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
    call: Callable[..., Tensor] = getattr(F, _OWN[spec.transposed][spec.axes - 1])  # as it is now: it may be replaced
    none = (0,) * spec.axes
    if spec.transposed:
        padding: Any = none if spec.is_uneven else spec.padding
        y = call(x, weight, bias, spec.stride, padding, spec.output_padding, spec.groups, spec.dilation)
        return spec.crop(y) if spec.is_uneven else y
    if spec.padding_mode != "zeros" or spec.is_uneven:
        return call(spec.pad(x), weight, bias, spec.stride, none, spec.dilation, spec.groups)
    return call(x, weight, bias, spec.stride, spec.padding, spec.dilation, spec.groups)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """A convolution of an engine's own.

    Args:
        x: [batch, in_channels, *size].
        weight: [out_channels, in_channels / groups, *kernel_size], in the dtype of x.
        bias: [out_channels], in the same dtype, or None.
        geometry: Stride, padding, dilation and groups.

    Returns:
        [batch, out_channels, *output size], in the dtype of x.
    """
    if x.is_cpu and x.dtype in _HALF:
        y = convolve(x.float(), weight.float(), None if bias is None else bias.float(), geometry)
        return laid_out_like(x, y.to(x.dtype))
    if x.is_cpu and x.dtype == torch.float32 and has_numbers(*x.shape[2:]):
        x, geometry = _rearranged(x, weight, geometry)
    return _CONVOLUTIONS[weight.ndim - 3](x, weight, bias, *geometry)


def _rearranged(x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[Tensor, Geometry]:
    """The same convolution as a call that oneDNN computes rightly."""
    stride, padding, dilation, groups = geometry
    spans = [d * (taps - 1) + 1 for d, taps in zip(dilation, weight.shape[2:], strict=True)]
    lengths = [n + 2 * zeros for n, zeros in zip(x.shape[2:], padding, strict=True)]
    along = list(zip(lengths, spans, stride, strict=True))
    single = [step > 1 and length - span < step for length, span, step in along]  # one output: the first window
    thinned = max(stride) > 1 and max(weight.shape[2:]) == 1
    is_beyond = any(zeros >= span for zeros, span in zip(padding, spans, strict=True))
    if any(padding) and (is_beyond or len(stride) == 3 or any(single) or thinned):
        x, padding = F.pad(x, reversed_pads((zeros, zeros) for zeros in padding)), (0,) * len(stride)
    if thinned:
        places: Any = (..., *(slice(None, None, step) for step in stride))
        x = x[places]
        return x, Geometry((1,) * len(stride), padding, dilation, groups)
    for axis, (is_single, span) in enumerate(zip(single, spans, strict=True), start=2):
        x = x.narrow(axis, 0, span) if is_single else x
    steps = tuple(1 if is_single else step for is_single, step in zip(single, stride, strict=True))
    return x, Geometry(steps, padding, dilation, groups)


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of a pixel lie next to each other; false inside ``torch.vmap``, which does not tell."""
    last = _CHANNELS_LAST.get(x.ndim)
    return last is not None and maybe_current_level() is None and x.is_contiguous(memory_format=last)


def laid_out_like(x: Tensor, y: Tensor) -> Tensor:
    """Y in the memory format that a convolution of x gives its result."""
    last = is_channels_last(x) and not x.is_contiguous()
    return y.contiguous(memory_format=_CHANNELS_LAST[x.ndim] if last else torch.contiguous_format)
