"""Every layer over images as one that can be drawn.

A convolution's layer stays as it is. A transposed layer looks at its stuffed input, and that is the image, padding and
all, as ``ConvSpec`` has it. Layers over sequences and volumes are not drawn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ....convert.errors import ConversionError
from ....convert.layer.layer import SelfAttention, SelfAttention2d
from ....convert.size import Size
from ....convert.spec import ConvSpec

MOST_NUMBERS = 2**25  # of a transposed layer's padded input: 134 MB in single precision
_IMAGE = 2  # axes
_OTHERS = {1: "sequences", 3: "volumes"}


class Plane(NamedTuple):
    """A layer over images, and its input."""

    layer: SelfAttention2d  # the layer, or what is seen of it
    x: Tensor  # its input, [1, in_channels, rows, columns]
    note: str | None  # the drawn input of a transposed layer, in words, or None


def undrawable(spec: ConvSpec) -> str | None:
    """Why a layer of this geometry cannot be drawn, or None."""
    return None if spec.axes == _IMAGE else f"it is over {_OTHERS[spec.axes]}, and layers over images are drawn"


def plane_of(layer: SelfAttention, x: Tensor) -> Plane:
    """A layer over images and its input [1, in_channels, rows, columns], as what is drawn of them.

    Raises:
        ConversionError: The layer is over something else, or is transposed and has content terms or learned scores, or
            its input is too large.
    """
    if (reason := undrawable(layer.spec)) is not None:
        raise ConversionError(reason)
    if isinstance(layer, SelfAttention2d) and not layer.spec.transposed:
        return Plane(layer, x, None)
    spec, size = layer.spec, Size(*x.shape[2:])
    if layer.content is not None or layer.axis_scores is not None:
        raise ConversionError("learned scores are not drawn of transposed layers")
    padded = spec.padded_size(size)
    if spec.in_channels * math.prod(padded) > MOST_NUMBERS:
        raise ConversionError(f"its padded input of {padded} pixels is too large to be drawn")
    flat = ConvSpec(
        spec.in_channels,
        spec.out_channels,
        spec.kernel_size,
        spec.query_stride,
        spec.dilation,
        groups=spec.groups,
        bias=spec.bias,
    )
    bias = None if layer.bias is None else nn.Parameter(layer.bias.detach())
    seen = SelfAttention2d(flat, weight=nn.Parameter(layer.kernel.detach()), bias=bias, engine=layer.engine)
    with torch.no_grad():
        seen.set_positions(alpha=layer.alpha.detach(), centers=layer.centers.detach())
    return Plane(seen.train(layer.training), spec.pad(x), "drawn as an image: its stuffed and padded input")
