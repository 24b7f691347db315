"""A convolution call that is right.

On a CPU torch leaves convolutions to oneDNN, and torch 2.13 (oneDNN 3.12) gets some of them wrong. They were found by
search; ``docs/verification.md`` shows each in plain torch, and says when and on which CPUs it happens. ``convolve`` is
``F.conv2d`` but for these:

* A result that is one column wide, with a stride along the columns: garbage, in half precision or where every group has
  one input channel. One more column is computed, from zeros that are appended to the image, and dropped.
* Taps that see only padding in an image narrower than the stride: a crash. The columns are padded before the call.
* A depthwise convolution of half precision whose kernel has many columns: the call does not return.
* The gradient of a bfloat16 kernel that is dilated along the rows, or reaches beyond narrow images: garbage, or a
  crash. These two are computed in float32 and rounded once, which is how the certificate understands half precision.

A few integers are compared, before anything is computed. The memory format, on which the faults mostly depend too, is
left out: what compiles a graph may change it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import maybe_current_level

from ..transforms import is_differentiated

_HALF = (torch.bfloat16, torch.float16)
_LONGEST_DEPTHWISE = 14  # columns of a depthwise kernel, up to which half precision returns
_ONE_VECTOR = 16  # channels that fit one register; with more of them it returns too

NARROW = "strided, with a result that is one column wide"
ENDLESS = "depthwise in half precision, with a kernel of many columns"
BEYOND = "padded by as many columns as the kernel spans, and an image narrower than the stride"
GRADIENT = "the gradient of a bfloat16 kernel that is dilated along the rows, or reaches beyond narrow images"


class Geometry(NamedTuple):
    """What a convolution call is told beside its tensors; pairs are for rows and columns.

    Attributes:
        stride: Pixels between outputs.
        padding: Zeros that the call adds at both ends.
        dilation: Pixels between taps.
        groups: Blocks of channels that do not mix.
    """

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """``F.conv2d``, computed another way where torch's own result is not to be trusted.

    Args:
        x: [batch, in_channels, rows, columns].
        weight: [out_channels, in_channels / groups, kernel rows, kernel columns], in the dtype of x.
        bias: [out_channels], in the same dtype, or None.
        geometry: Stride, padding, dilation and groups.

    Returns:
        [batch, out_channels, output rows, output columns].
    """
    if is_endless(x, weight, geometry) or has_wrong_gradient(x, weight, geometry):
        precise = convolve(x.float(), weight.float(), None if bias is None else bias.float(), geometry)
        return precise.to(x.dtype)
    if is_beyond(x, weight, geometry):
        columns = geometry.padding[1]
        x, geometry = F.pad(x, (columns, columns)), geometry._replace(padding=(geometry.padding[0], 0))
    if is_narrow(x, weight, geometry):
        wider = F.conv2d(F.pad(x, (0, geometry.stride[1])), weight, bias, *geometry)
        return laid_out_like(x, wider[..., :-1])
    return F.conv2d(x, weight, bias, *geometry)


def known_fault(x: Tensor, weight: Tensor, geometry: Geometry) -> str | None:
    """What makes torch's own call one that is not to be trusted, in words, or None."""
    if is_narrow(x, weight, geometry):
        return NARROW
    if is_endless(x, weight, geometry):
        return ENDLESS
    if has_wrong_gradient(x, weight, geometry):
        return GRADIENT
    return BEYOND if is_beyond(x, weight, geometry) else None


def is_narrow(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether the result is one column wide although the stride is not 1, where torch goes wrong then.

    Exported with a width that is not fixed, torch's own convolution excludes a result of one column, so this may ask.
    """
    stride = geometry.stride[1]
    if stride == 1 or not _is_onednns(x) or (weight.shape[1] > 1 and x.dtype not in _HALF):
        return False
    return x.shape[3] + 2 * geometry.padding[1] - _span(weight, geometry) < stride


def is_beyond(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether taps that see only padding in an image narrower than the stride may crash the call."""
    if not _is_onednns(x) or torch.compiler.is_exporting():
        return False
    return geometry.padding[1] >= _span(weight, geometry) and x.shape[3] < geometry.stride[1]


def is_endless(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether torch may never return."""
    if x.dtype not in _HALF or not _is_onednns(x) or weight.shape[3] <= _LONGEST_DEPTHWISE:
        return False
    depthwise = weight.shape[1] == 1 and weight.shape[0] == geometry.groups <= _ONE_VECTOR
    return depthwise and geometry.stride[1] == 1 and geometry.dilation == (1, 1)


def has_wrong_gradient(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether torch may give the kernel a wrong gradient; in an exported program gradients are torch's own."""
    if x.dtype != torch.bfloat16 or not _is_onednns(x) or torch.compiler.is_exporting():
        return False
    if not (torch.is_grad_enabled() and weight.requires_grad) and not is_differentiated(weight):
        return False
    span, columns = _span(weight, geometry), x.shape[3]
    wide = columns >= span and columns >= geometry.stride[1] and geometry.padding[1] < span
    return geometry.dilation[0] > 1 or not wide


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of a pixel lie next to each other; false inside ``torch.vmap``, which does not tell."""
    return maybe_current_level() is None and x.is_contiguous(memory_format=torch.channels_last)


def laid_out_like(x: Tensor, y: Tensor) -> Tensor:
    """Y in the memory format that a convolution of x gives its result."""
    last = is_channels_last(x) and not x.is_contiguous()
    return y.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _is_onednns(x: Tensor) -> bool:
    """Whether torch may leave a convolution of x to oneDNN; ``torch.jit.trace`` has no sizes to decide the rest by."""
    return x.is_cpu and torch._C._get_tracing_state() is None


def _span(weight: Tensor, geometry: Geometry) -> int:
    """Columns from the kernel's first tap to its last."""
    return geometry.dilation[1] * (weight.shape[3] - 1) + 1
