"""Small transposed convolutions with a symbol for every weight and every pixel, along any number of axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from sympy import ZZ
from sympy.polys.rings import ring

from .small_convolutions import Element

Places = tuple[int, ...]


class Line(NamedTuple):
    """A transposed convolution along one axis, in numbers or in symbols.

    Attributes:
        taps: K.
        stride: s.
        dilation: d.
        near: Outputs p that the padding drops before the axis.
        far: Outputs p' that it drops after it.
        added: Outputs a that the output padding adds after it.
        pixels: L, of the input.
    """

    taps: Any
    stride: Any
    dilation: Any
    near: Any
    far: Any
    added: Any
    pixels: Any

    def __str__(self) -> str:
        return (
            f"{self.pixels} pixels, {self.taps} taps, stride {self.stride}, dilation {self.dilation}, padding "
            f"{self.near}/{self.far}, output padding {self.added}"
        )


def lands(line: Line, pixel: Any, tap: Any) -> Any:
    """s j + d k - p: the output that pixel j is added to, times tap k. This is the definition."""
    return line.stride * pixel + line.dilation * tap - line.near


def outputs(line: Line) -> Any:
    """Number of outputs, as PyTorch defines it."""
    return (line.pixels - 1) * line.stride - line.near - line.far + line.dilation * (line.taps - 1) + line.added + 1


Along = Callable[[Line], Any]


@dataclass(frozen=True)
class Transposed:
    """A small transposed convolution: its axes, input and output channels, and groups."""

    lines: tuple[Line, ...]
    channels: tuple[int, int] = (1, 1)
    groups: int = 1

    def __str__(self) -> str:
        axes = " by ".join(f"({line})" for line in self.lines)
        return f"{axes}, channels {self.channels[0]}->{self.channels[1]}, groups {self.groups}"

    def grid(self, length: Along) -> list[Places]:
        """All places of a grid with this length along each axis."""
        return list(product(*(range(length(line)) for line in self.lines)))

    @property
    def mixed(self) -> list[tuple[int, int]]:
        """Pairs of an output and an input channel of the same group."""
        inputs, results = (count // self.groups for count in self.channels)
        pairs = product(range(self.channels[1]), range(self.channels[0]))
        return [(o, c) for o, c in pairs if o // results == c // inputs]


CASES = (
    Transposed((Line(1, 1, 1, 0, 0, 0, 3),)),
    Transposed((Line(3, 2, 1, 1, 1, 1, 3),)),
    Transposed((Line(2, 3, 2, 0, 0, 2, 3),), channels=(2, 1)),
    Transposed((Line(3, 2, 1, 4, 4, 1, 6),)),  # padding > d (K - 1): pixels are dropped
    Transposed((Line(2, 1, 3, 1, 4, 2, 4),)),
    Transposed((Line(1, 3, 1, 2, 0, 1, 3),), channels=(1, 2)),  # one tap: outputs that are zero between pixels
    Transposed((Line(2, 2, 1, 0, 0, 0, 2), Line(3, 1, 1, 1, 1, 0, 3))),
    Transposed((Line(3, 2, 1, 1, 1, 1, 2), Line(2, 1, 2, 1, 0, 0, 3)), channels=(2, 4), groups=2),
    Transposed((Line(2, 2, 1, 2, 2, 1, 4), Line(2, 3, 2, 3, 1, 2, 2)), channels=(2, 2)),
    Transposed((Line(2, 1, 2, 0, 1, 1, 2), Line(1, 2, 1, 0, 0, 1, 3)), channels=(2, 2), groups=2),
    Transposed((Line(2, 2, 1, 1, 1, 1, 2), Line(1, 1, 1, 0, 0, 0, 2), Line(2, 1, 2, 1, 1, 0, 2))),
)


@dataclass(frozen=True)
class Numbers:
    """Entries of a transposed convolution: ring elements, or numbers.

    Attributes:
        zero: Of the ring.
        weight: By (input channel, output channel, *tap), within the groups.
        bias: By output channel.
        image: By (input channel, *pixel).
    """

    zero: Element
    weight: dict[Places, Element]
    bias: list[Element]
    image: dict[Places, Element]


def transposed_symbols(case: Transposed) -> Numbers:
    """A symbol for every weight, bias and pixel."""
    taps, pixels = case.grid(lambda line: line.taps), case.grid(lambda line: line.pixels)
    weights = [(c, o, *tap) for o, c in case.mixed for tap in taps]
    image = [(c, *pixel) for c in range(case.channels[0]) for pixel in pixels]
    names = [f"{kind}{'_'.join(map(str, index))}" for kind, part in (("w", weights), ("x", image)) for index in part]
    polynomials, *generators = ring(names + [f"b{o}" for o in range(case.channels[1])], ZZ)
    left = iter(generators)
    by_weight, by_pixel = ({index: next(left) for index in part} for part in (weights, image))
    return Numbers(polynomials.zero, by_weight, list(left), by_pixel)


def transposed_convolution(case: Transposed, given: Numbers) -> dict[Places, Element]:
    """Transposed convolution by its definition: every pixel times every tap is added where it lands.

    Keyed by (output channel, *output).
    """
    found = {(o, *place): given.bias[o] for o in range(case.channels[1]) for place in case.grid(outputs)}
    for (c, o, *tap), weight in given.weight.items():
        for pixel in case.grid(lambda line: line.pixels):
            place = (o, *map(lands, case.lines, pixel, tap))
            if place in found:
                found[place] += weight * given.image[c, *pixel]
    return found
