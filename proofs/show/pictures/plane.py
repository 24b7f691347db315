"""Every layer as one over a plane, which is what can be drawn.

A layer over images stays as it is. A sequence is an image of one row. A transposed layer looks at its stuffed input,
and that is the image, padding and all, as ``ConvSpec`` has it. Of a volume one plane is shown, with the taps that lie
in it: the planes before and behind it are left out, and so are the taps there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ....convert.attention.layer import SelfAttention, SelfAttention2d
from ....convert.errors import ConversionError
from ....convert.size import Size
from ....convert.spec import ConvSpec

MOST_NUMBERS = 2**25  # of a padded input that is not an image's: 134 MB in single precision
_SEQUENCE, _PLANE, _VOLUME = 1, 2, 3  # axes


class Plane(NamedTuple):
    """A layer over images, and its input."""

    layer: SelfAttention2d  # the layer, or what is seen of it
    x: Tensor  # its input, [1, in_channels, rows, columns]
    note: str | None  # the drawn part of a layer that is not over images, in words, or None


def plane_of(layer: SelfAttention, x: Tensor) -> Plane:
    """A layer and its input [1, in_channels, *size], as what is drawn of them.

    Raises:
        ConversionError: The layer has content terms or learned scores along other axes, or its input is too large.
    """
    if isinstance(layer, SelfAttention2d) and not layer.spec.transposed:
        return Plane(layer, x, None)
    spec, size = layer.spec, Size(*x.shape[2:])
    if layer.content is not None or layer.axis_scores is not None:
        raise ConversionError("learned scores are drawn of layers over images alone")
    padded, output = spec.padded_size(size), spec.output_size(size)
    if spec.in_channels * math.prod(padded) > MOST_NUMBERS:
        raise ConversionError(f"its padded input of {padded} pixels is too large to be drawn")
    grid, kernel = spec.pad(x), layer.kernel.detach()
    centers, alpha = layer.centers.detach(), layer.alpha.detach()
    stride, dilation = spec.query_stride, spec.dilation
    if spec.axes == _SEQUENCE:
        grid, kernel, centers = grid.unsqueeze(2), kernel.unsqueeze(2), nn.functional.pad(centers, (1, 0))
        stride, dilation = (1, *stride), (1, *dilation)
    elif spec.axes == _VOLUME:
        tap = (spec.kernel_size[0] - 1) // 2
        inside = torch.tensor(spec.tap_offsets, device=centers.device)[:, 0] == 0
        grid = grid[:, :, output[0] // 2 * stride[0] + dilation[0] * tap]
        kernel, centers, alpha = kernel[:, :, tap], centers[inside, 1:], alpha[inside]
        stride, dilation = stride[1:], dilation[1:]
    flat = ConvSpec(
        spec.in_channels,
        spec.out_channels,
        tuple(kernel.shape[2:]),
        stride,
        dilation,
        groups=spec.groups,
        bias=spec.bias,
    )
    bias = None if layer.bias is None else nn.Parameter(layer.bias.detach())
    seen = SelfAttention2d(flat, weight=nn.Parameter(kernel), bias=bias, engine=layer.engine)
    with torch.no_grad():
        seen.set_positions(alpha=alpha, centers=centers)
    return Plane(seen.train(layer.training), grid, _note(spec))


def _note(spec: ConvSpec) -> str:
    kinds = {_SEQUENCE: "one row", _PLANE: "an image", _VOLUME: "the middle plane of its volume, and the taps in it"}
    stuffed = "its stuffed and padded input" if spec.transposed else "its padded input"
    return f"drawn as {kinds[spec.axes]}: {stuffed}"
