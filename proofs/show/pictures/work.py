"""How much may be computed and drawn for pictures of a network."""

from __future__ import annotations

import math

from ....convert.attention.layer import SelfAttention
from ....convert.size import Size

MOST_NUMBERS = 2**28  # of a layer's padded input, or of its output: 1 GB in single precision
_MOST_DRAWN = 2**26  # numbers in the images that are drawn for layers without their network


class TooMuchError(Exception):
    """Ends a run that takes more than it may."""


class Work:
    """What may still be computed and drawn.

    Args:
        limit: Multiply-adds of attention layers, which in the exact regime are their convolutions'.
    """

    def __init__(self, limit: float) -> None:
        self._left, self._numbers = limit, _MOST_DRAWN

    def add(self, layer: SelfAttention, images: int, size: Size) -> None:
        """Counts a layer that is about to run on so many images, or refuses it and counts nothing.

        Raises:
            TooMuchError: It takes more than is left.
            ConversionError: It does not fit the images.
        """
        spec = layer.spec
        padded, output = math.prod(spec.padded_size(size)), math.prod(spec.output_size(size))
        work, numbers = layer.weight.numel() * output, max(spec.in_channels * padded, spec.out_channels * output)
        if work > self._left or images * numbers > MOST_NUMBERS:
            raise TooMuchError
        self._left -= work

    def draw(self, numbers: int) -> None:
        """Counts the numbers of an image that is drawn for a layer.

        Raises:
            TooMuchError: They are more than are left.
        """
        if numbers > self._numbers:
            raise TooMuchError
        self._numbers -= numbers
