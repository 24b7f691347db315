"""Limits of pictures and pages: a layer that takes too much memory is named and not drawn; of many layers, some are.

Pages have them, too, and need no matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from ...convert.arguments import Size
from ...convert.layer.layer import SelfAttention
from ...convert.spec import ConvSpec

MOST_LAYERS = 12  # in a picture
SIDE, PIXELS = 2048, 2**20  # of a layer's padded input
NUMBERS = 2**25  # in a layer's padded input with all channels, or in its output: 134 MB in single precision
HEADS = 4096  # in a layer: a kernel of 64x64
_COMPUTED = 2**28  # numbers of a layer that is run and not drawn
_T = TypeVar("_T")


def too_large(spec: ConvSpec, size: Size) -> str | None:
    """Why a layer is too large to be drawn for an input of this size; None if it is not."""
    padded, numbers = spec.padded_size(size), _numbers(spec, size)
    if spec.num_heads > HEADS:
        return f"it has {spec.num_heads:,} heads, and at most {HEADS:,} are drawn"
    if max(padded) > SIDE or math.prod(padded) > PIXELS:
        return f"its padded input has {padded} pixels, and at most {SIDE} a side and {PIXELS:,} in all are drawn"
    if numbers > NUMBERS:
        return f"its {spec.in_channels:,} input or {spec.out_channels:,} output channels are too many to be drawn"
    return None


def within(limit: float) -> Callable[[SelfAttention, Tensor], bool]:
    """A test that accepts layers before their inputs while all together take at most so many multiply-adds."""
    left = limit

    def allowed(layer: SelfAttention, x: Tensor) -> bool:
        nonlocal left
        size = Size(*x.shape[2:])
        left -= layer.weight.numel() * math.prod(layer.spec.output_size(size))
        return left >= 0 and len(x) * _numbers(layer.spec, size) <= _COMPUTED

    return allowed


def _numbers(spec: ConvSpec, size: Size) -> int:
    padded, output = spec.padded_size(size), spec.output_size(size)
    return max(spec.in_channels * math.prod(padded), spec.out_channels * math.prod(output))


def evenly(items: Sequence[_T], most: int = MOST_LAYERS) -> list[_T]:
    """At most so many of the items, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]
