"""A transposed convolution call that is right.

A transposed convolution is the gradient of a convolution with respect to its image, and its own gradients are that
convolution and its kernel's gradient. So what oneDNN gets wrong of one (``convolution.py``), it gets wrong of the
other, which a search confirmed: the image is then the result. ``convolve_transposed`` is ``F.conv_transpose1d``, ``2d``
or ``3d`` but for these.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from ..spec import reversed_pads
from .convolution import Geometry, is_beyond, is_narrow, laid_out_like, needs_precision, spans

_CONVOLUTIONS: tuple[Callable[..., Tensor], ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def convolve_transposed(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, output_padding: tuple[int, ...]
) -> Tensor:
    """A transposed convolution, computed another way where torch's result is not to be trusted.

    Args:
        x: [batch, in_channels, *size].
        weight: [in_channels, out_channels / groups, *kernel_size], in the dtype of x.
        bias: [out_channels], in the same dtype, or None.
        geometry: Stride, padding, dilation and groups.
        output_padding: Outputs added at the far end of each axis.

    Returns:
        [batch, out_channels, *output size].
    """
    size = result_size(x, weight, geometry, output_padding)
    if needs_precision(x, weight, geometry, size):
        single = None if bias is None else bias.float()
        return convolve_transposed(x.float(), weight.float(), single, geometry, output_padding).to(x.dtype)
    if is_beyond(x, weight, geometry, size):
        plain = geometry._replace(padding=(0,) * len(geometry.padding))
        larger = convolve_transposed(x, weight, bias, plain, output_padding)
        return laid_out_like(x, F.pad(larger, reversed_pads((-zeros, -zeros) for zeros in geometry.padding)))
    if is_narrow(x, weight, geometry, size):
        wider = _call(F.pad(x, (0, 1)), weight, bias, geometry, output_padding)
        return laid_out_like(x, wider[..., : -geometry.stride[-1]])
    return _call(x, weight, bias, geometry, output_padding)


def result_size(x: Tensor, weight: Tensor, geometry: Geometry, output_padding: tuple[int, ...]) -> tuple[int, ...]:
    """Size of the result."""
    along = zip(x.shape[2:], geometry.stride, geometry.padding, spans(weight, geometry), output_padding, strict=True)
    return tuple((n - 1) * stride - 2 * padding + span + added for n, stride, padding, span, added in along)


def _call(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, output_padding: tuple[int, ...]
) -> Tensor:
    stride, padding, dilation, groups = geometry
    return _CONVOLUTIONS[weight.ndim - 3](x, weight, bias, stride, padding, output_padding, groups, dilation)
