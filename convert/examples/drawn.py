"""The drawn image that reports, pages and pictures use when none is given."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConversionError
from ..layer.layer import SelfAttention
from ..size import Size

DRAWN_SIZE = Size(64, 64)
MOST_NUMBERS = 2**26  # numbers of a drawn image: 268 MB
_DEPTH = 8  # planes of a volume that is made of an image
_PLANES = 64  # different ones of an image with more channels
_SEQUENCE, _PLANE = 1, 2  # axes


def drawn_image(channels: int, size: Size = DRAWN_SIZE) -> Tensor:
    """A ring, a square and a grating before a slope, each channel weighing them in its own way.

    Args:
        channels: Number of channels.
        size: Rows and columns.

    Returns:
        [1, channels, rows, columns], float32, within -1 to 1.

    Raises:
        ConversionError: That is more than ``MOST_NUMBERS``.
    """
    if channels * math.prod(size) > MOST_NUMBERS:
        raise ConversionError(f"an image of {channels:,} channels and {size} pixels is too large to be drawn")
    row, column = torch.meshgrid(*((torch.arange(n) + 0.5) / n for n in size), indexing="ij")
    ring = _inside((torch.hypot(row - 0.34, column - 0.33) - 0.17).abs() - 0.05, size)
    square = _inside(torch.maximum((row - 0.68).abs(), (column - 0.64).abs()) - 0.17, size)
    grating = 0.5 + 0.5 * torch.sin(2 * math.pi * 9 * (row + column))
    slope = 0.5 * column - 0.35 * row
    planes = []
    for channel in range(min(channels, _PLANES)):
        tint = math.cos(1.1 * channel + 0.4)  # no two of the first channels weigh alike
        planes.append(slope * (0.6 + 0.4 * tint) - ring * (0.55 + 0.2 * tint) + square * (0.25 - 0.35 * tint) * grating)
    return torch.stack(planes).clamp(-1, 1)[torch.arange(channels) % _PLANES].unsqueeze(0)


def drawn_input(layer: SelfAttention, size: Size = DRAWN_SIZE) -> Tensor:
    """A drawn image as a layer takes it: [1, in_channels, *size], in the layer's precision and on its device.

    Raises:
        ConversionError: As ``drawn_image``.
    """
    with torch.device("cpu"):  # whatever torch's default is
        planes = drawn_image(layer.in_channels, size)
    return network_input(planes.to(layer.weight), layer.spec.axes)


def network_input(image: Tensor, axes: int) -> Tensor:
    """Input for a network over this many axes from an image [1, channels, rows, columns]: a row, or a film."""
    if axes == _SEQUENCE:
        return image[:, :, image.shape[2] // 3]
    return image if axes == _PLANE else image.unsqueeze(2).expand(-1, -1, _DEPTH, -1, -1)


def _inside(distance: Tensor, size: Size) -> Tensor:
    """A signed distance to an outline (negative inside, the image's side is 1) as an antialiased coverage."""
    return (0.5 - distance * min(size)).clamp(0, 1)
