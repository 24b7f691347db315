"""Limits of the page: a layer that exceeds them is named and not drawn.

A file of a hundred bytes can declare a padding of a thousand pixels, or a million channels. What the page draws takes
memory and room in proportion to those, so that every layer alone, and all together, stay within these limits.
"""

from __future__ import annotations

import math

from ....convert.size import Size
from ....convert.spec import ConvSpec

SIDE = 2048  # rows or columns of a layer's padded input
PIXELS = 2**20  # in a layer's padded input
NUMBERS = 2**25  # in a layer's padded input with all channels, or in its output: 134 MB in single precision
HEADS = 4096  # in a layer: a kernel of 64x64
ALL_PIXELS = 2**23  # in all layers' padded inputs: 11 MB of base64, or three times as much in colour
ALL_HEADS = 2**16
LAYERS = 2000  # in the page's list


class Room:
    """Room that is left for further layers."""

    def __init__(self) -> None:
        self.pixels, self.heads = ALL_PIXELS, ALL_HEADS

    def take(self, spec: ConvSpec, size: Size) -> str | None:
        """Takes the room of a layer before an input of this size; or says why it has none, and takes nothing."""
        pixels, heads = math.prod(spec.padded_size(size)), spec.num_heads
        reason = too_large(spec, size)
        if reason is None and (pixels > self.pixels or heads > self.heads):
            reason = "the layers before it fill the page"
        if reason is None:
            self.pixels, self.heads = self.pixels - pixels, self.heads - heads
        return reason


def too_large(spec: ConvSpec, size: Size) -> str | None:
    """Why a layer is too large to draw for an input of this size, on any page; None if it is not."""
    padded, output = spec.padded_size(size), spec.output_size(size)
    if spec.num_heads > HEADS:
        return f"it has {spec.num_heads:,} heads, and at most {HEADS:,} are drawn"
    if max(padded) > SIDE or math.prod(padded) > PIXELS:
        return f"its padded input has {padded} pixels, and at most {SIDE} a side and {PIXELS:,} in all are drawn"
    if max(spec.in_channels * math.prod(padded), spec.out_channels * math.prod(output)) > NUMBERS:
        return f"its {spec.in_channels:,} input or {spec.out_channels:,} output channels are too many to be drawn"
    return None
