"""Records of a network's heads after each epoch, from which their attention can be drawn."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...convert.size import Size
from ..heads.attention import HeadAttention
from ..heads.grid import Grid
from ..heads.likeness import layer_likeness
from ..heads.positions import moments
from ..networks.attention import AttentionNetwork
from ..training.records import Record

_DIGITS = 4  # after the point: a ten-thousandth of a pixel
_LEVELS = 255  # levels of a probability in a byte


@dataclass(frozen=True)
class HeadRecorder:
    """Records the heads of a network of attention; of any other network nothing.

    Attributes:
        images: What heads with content see, [count, channels, rows, columns].
    """

    images: Tensor

    def __call__(self, network: nn.Module) -> Record:
        """For each layer, its heads' centres, covariances and maps, and how convolutional they are.

        Centres are (row, column) from the query, in pixels; a covariance is (rows, both, columns), in square pixels.
        Maps are those of the query in the middle; where there is content, means over the images.
        """
        if not isinstance(network, AttentionNetwork):
            return {}
        weight = next(network.parameters())
        x = network.embed(self.images.to(weight))
        layers = []
        for block, layer in zip(network.blocks, network.layers, strict=True):
            layers.append(_layer(layer, network.grid, x))
            x = block(x)
        return {"layers": layers}


def _layer(layer: HeadAttention, grid: Grid, x: Tensor) -> dict[str, Any]:
    """Record of one layer that sees x [batch, rows, columns, channels]."""
    seen = None if layer.content is None else x
    maps = layer.probabilities(grid, seen)
    middle = maps[..., grid.middle, :].reshape(-1, *maps.shape[-3:-2], maps.shape[-1]).mean(0)
    offsets = grid.offsets(middle)[grid.middle]
    shape = layer.positions.shape(grid) if seen is None else moments(middle, offsets)
    likeness = layer_likeness(layer, Size(grid.rows, grid.columns), seen)
    return {
        "centers": _rounded(shape.centers),
        "covariances": _rounded(shape.covariances.flatten(1)[:, [0, 1, 3]]),
        "maps": packed(middle),
        "taps": [list(head.tap) for head in likeness.heads],
        "one_pixel": likeness.one_pixel,
        "spread": likeness.spread,
        "nonlocality": likeness.nonlocality,
        "distance": likeness.distance,
    }


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, _DIGITS) for value in row] for row in values.tolist()]


def packed(maps: Tensor) -> str:
    """Probabilities as a byte each, of 255, as text."""
    return base64.b64encode(maps.mul(_LEVELS).round().to(torch.uint8).cpu().numpy().tobytes()).decode("ascii")


def unpacked(text: str, shape: tuple[int, int, int]) -> Tensor:
    """The probabilities that ``packed`` was given, each within half of a 255th: [num_heads, key rows, key columns].

    Raises:
        ValueError: The text is something else.
    """
    content = base64.b64decode(text, validate=True)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).float().div(_LEVELS).view(shape)
