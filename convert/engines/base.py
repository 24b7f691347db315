"""What an engine is: one way to compute the attention layer, and when it may.

All engines have the same signature and the same result. An engine that would not be exact for a layer's
parameters says why, and is not used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..heads.values import AttentionLayer
from ..size import Size
from ..spec import ConvSpec, reversed_pads
from ..transforms import is_differentiated, is_differentiating


@dataclass(frozen=True)
class Cost:
    """What one forward call costs.

    Attributes:
        flops: Floating-point operations; a multiplication and an addition are two, an exponential is one. Keys that
            weigh next to nothing do not count. A table along an axis may multiply their zeros all the same, which tools
            that count products do count.
        bytes: Memory held at the same time beside the input, the output and the parameters.
    """

    flops: int
    bytes: int

    def __add__(self, other: Cost) -> Cost:
        """The cost of both."""
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


class Engine(ABC):
    """One way to compute a layer.

    Attributes:
        name: What ``layer.engine`` calls it.
        summary: What it runs, in one line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def refusal(self, layer: AttentionLayer) -> str | None:
        """Why the engine is not exact for the layer's parameters, or None if it is."""

    @abstractmethod
    def cost(self, layer: AttentionLayer, size: Size, *, batch: int = 1) -> Cost:
        """What a forward call on ``batch`` inputs of this size costs."""

    def error(self, layer: AttentionLayer) -> float:
        """Largest rounding error of an output, relative to sum |w| max |x|, or to sum |w||x| in the exact regime.

        The order of sums is whatever the libraries choose. Infinite where no bound is known, as for an engine that does
        not say; ``rounding.py`` has the formulas.
        """
        return math.inf

    @abstractmethod
    def attend(self, layer: AttentionLayer, x: Tensor) -> Tensor:
        """Computes the layer.

        Args:
            layer: A layer that the engine does not refuse.
            x: [batch, in_channels, *size].

        Returns:
            [batch, out_channels, *output size].
        """


def positions_are_trained(layer: AttentionLayer) -> bool:
    """Whether derivatives with respect to centres or locality strengths are asked for, backward or forward."""
    return are_trained(layer.alpha, layer.centers)


def are_trained(*parameters: Tensor) -> bool:
    """Whether derivatives with respect to any of these are asked for, backward or forward."""
    if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters):
        return True
    return is_differentiating() and any(map(is_differentiated, parameters))


def convolution_padding(spec: ConvSpec) -> tuple[int, ...]:
    """Zeros at both ends of each axis that a convolution call adds by itself."""
    if spec.padding_mode != "zeros" or (spec.is_uneven and not spec.transposed):
        return (0,) * spec.axes
    return tuple(before for before, _ in spec.pads)


def pad_as_convolution(spec: ConvSpec, x: Tensor) -> Tensor:
    """Does what ``nn.Conv2d`` does before its own padding, so that the sums come in the same order, bit for bit.

    Returns:
        The input, padded where a convolution call cannot; ``convolution_padding`` is left to that call. Of a transposed
        convolution's input, the pixels that are keys; where there are none, the whole key grid, which is all zeros.
    """
    if spec.transposed:
        unseen = dropped(spec, Size(*x.shape[2:]))
        if unseen is None:
            return spec.pad(x)
        return F.pad(x, reversed_pads((-b, -a) for b, a in unseen)) if any(map(any, unseen)) else x
    if spec.padding_mode != "zeros" or spec.is_uneven:
        return spec.pad(x)
    if all(before == after for before, after in spec.pads):
        return x
    return F.pad(x, reversed_pads((0, after - before) for before, after in spec.pads))


def dropped(spec: ConvSpec, size: Size) -> tuple[tuple[int, int], ...] | None:
    """Pixels before and after each axis that a transposed convolution's padding drops; None if no pixel is left."""
    if not spec.transposed:
        return ((0, 0),) * spec.axes
    along = zip(spec.pads, spec.stuffing, strict=True)
    found = tuple((max(0, -(before // step)), max(0, -(after // step))) for (before, after), step in along)
    if any(length <= sum(pair) for length, pair in zip(size, found, strict=True) if any(pair)):
        return None
    return found


def convolution_flops(spec: ConvSpec, size: Size, *, batch: int) -> int:
    """FLOPs of the sum over taps and channels, which every engine contains.

    A transposed convolution multiplies no stuffed zeros: it spreads each pixel of the input over the taps.
    """
    pixels = math.prod(size if spec.transposed else spec.output_size(size))
    terms = spec.num_heads * spec.in_channels // spec.groups
    return 2 * batch * pixels * spec.out_channels * terms
