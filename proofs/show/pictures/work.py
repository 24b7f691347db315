"""Limits on the work for pictures of a network."""

from __future__ import annotations

import math

from ....convert.attention.layer import SelfAttention
from ....convert.size import Size

MOST_NUMBERS = 2**28  # of a layer's padded input, or of its output: 1 GB in single precision
_MOST_DRAWN = 2**26  # numbers in the images that are drawn for layers without their network


class Work:
    """Work that is left for computing and drawing.

    Args:
        limit: Multiply-adds of attention layers, which in the exact regime are their convolutions'.
    """

    def __init__(self, limit: float) -> None:
        self._left, self._numbers = limit, _MOST_DRAWN

    def add(self, layer: SelfAttention, images: int, size: Size) -> bool:
        """Whether a layer that is about to run on so many images takes no more than is left, which is then less.

        Raises:
            ConversionError: It does not fit the images.
        """
        spec = layer.spec
        padded, output = math.prod(spec.padded_size(size)), math.prod(spec.output_size(size))
        work, numbers = layer.weight.numel() * output, max(spec.in_channels * padded, spec.out_channels * output)
        fits = work <= self._left and images * numbers <= MOST_NUMBERS
        self._left -= work if fits else 0
        return fits

    def draw(self, numbers: int) -> bool:
        """Whether an image that is drawn for a layer has no more numbers than are left, which are then fewer."""
        fits = numbers <= self._numbers
        self._numbers -= numbers if fits else 0
        return fits
