"""The interface of an engine: one way to compute the attention layer, and when it may be used.

All engines have the same signature and the same result. An engine that would not be exact for a layer's
parameters says why, and is not used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..arguments import Size, format_bytes
from ..context import is_traced
from ..errors import MemoryLimitError
from ..heads.values import LayerValues
from ..spec import ConvSpec


@dataclass(frozen=True)
class Cost:
    """The cost of one forward call.

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
    def refusal(self, layer: LayerValues) -> str | None:
        """Why the engine is not exact for the layer's parameters, or None if it is."""

    @abstractmethod
    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """The cost of a forward call on ``batch`` inputs of this size."""

    def error(self, layer: LayerValues) -> float:
        """Largest rounding error of an output, relative to sum |w| max |x|, or to sum |w||x| in the exact regime.

        The order of sums is whatever the libraries choose. Infinite where no bound is known, as for an engine that does
        not say; ``rounding.py`` has the formulas.
        """
        return math.inf

    @abstractmethod
    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer.

        Args:
            layer: A layer that the engine does not refuse.
            x: [batch, in_channels, *size].

        Returns:
            [batch, out_channels, *output size].

        Raises:
            MemoryLimitError: The call would hold more than the layer's ``memory_limit``.
        """

    def check_memory(self, layer: LayerValues, x: Tensor) -> None:
        """Refuses a call that would hold more than the layer's ``memory_limit``, before anything is allocated."""
        if is_traced():  # sizes are symbols
            return
        size = Size(*x.shape[2:])
        needed = self.cost(layer, size, batch=x.shape[0]).bytes
        if needed > layer.memory_limit:
            raise MemoryLimitError(
                f"the {self.name} engine needs {format_bytes(needed)} for {layer.spec.num_heads} heads, input {size}, "
                f"batch {x.shape[0]}; memory_limit allows {format_bytes(layer.memory_limit)}: raise it, or take the "
                "engine that layer.explain(size) names"
            )


def learned_scores(layer: LayerValues) -> str | None:
    """Why the scores of a layer are not its quadratic ones at rest, or None if they are."""
    if layer.content is not None:
        return "the layer has content terms"
    if layer.axis_scores is not None:
        return "the positional scores are learned tables"
    return (
        "its positions are trained, so alpha and centers are not known as numbers" if layer.trains_positions else None
    )


def convolution_flops(spec: ConvSpec, size: Size, *, batch: int) -> int:
    """FLOPs of the sum over taps and channels, which every engine contains.

    A transposed convolution multiplies no stuffed zeros: it spreads each pixel of the input over the taps.
    """
    pixels = math.prod(size if spec.transposed else spec.output_size(size))
    terms = spec.num_heads * spec.in_channels // spec.groups
    return 2 * batch * pixels * spec.out_channels * terms
