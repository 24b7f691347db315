"""The symbols that several claims share.

Small convolutions with a symbol for every weight and every pixel.

Two sides are written down independently of each other: the usual convolution, which works out by index arithmetic
what lies outside the image, and the padded image, on whose pixels the attention looks.

Small transposed convolutions with a symbol for every weight and every pixel, along any number of axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import sympy as sp
from sympy import ZZ
from sympy.polys.rings import ring

alpha = sp.Symbol("alpha", real=True)
delta_1, delta_2, Delta_1, Delta_2 = sp.symbols("delta_1 delta_2 Delta_1 Delta_2", real=True)


Element = Any  # of a polynomial ring
Pixel = tuple[int, int]
Grid = list[list[Element]]


@dataclass(frozen=True)
class Case:
    """One convolution's geometry.

    Attributes:
        kernel: Rows and columns of taps.
        stride: Rows and columns between neighbouring queries.
        dilation: Rows and columns between neighbouring taps.
        pads: Pixels added at the top, bottom, left and right.
        mode: What the added pixels hold: zeros, reflect, replicate or circular.
        channels: Input and output channels.
        groups: Groups of channels that do not mix.
        size: Rows and columns of the image.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    mode: str = "zeros"
    channels: tuple[int, int] = (1, 1)
    groups: int = 1
    size: tuple[int, int] = (3, 4)

    def __str__(self) -> str:
        return (
            f"kernel {_by(self.kernel)}, stride {_by(self.stride)}, dilation {_by(self.dilation)}, "
            f"padding {'/'.join(map(str, self.pads))} {self.mode}, channels {'->'.join(map(str, self.channels))}, "
            f"groups {self.groups}, image {_by(self.size)}"
        )

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of the padded image."""
        return self.size[0] + self.pads[0] + self.pads[1], self.size[1] + self.pads[2] + self.pads[3]

    @property
    def output(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        span = [self.dilation[axis] * (self.kernel[axis] - 1) + 1 for axis in (0, 1)]
        rows, columns = ((self.padded[axis] - span[axis]) // self.stride[axis] + 1 for axis in (0, 1))
        return rows, columns

    @property
    def taps(self) -> list[Pixel]:
        """(m, n), row by row."""
        return pixels(self.kernel)

    def mixed(self, o: int) -> range:
        """The input channels that output channel o sees."""
        width = self.channels[0] // self.groups
        first = o // (self.channels[1] // self.groups) * width
        return range(first, first + width)


@dataclass(frozen=True)
class Symbols:
    """A polynomial ring with one generator for every weight, bias and pixel.

    Attributes:
        zero: The ring's zero.
        weight: By (output channel, input channel, m, n); only within the groups.
        bias: By output channel.
        image: By channel, then row, then column.
    """

    zero: Element
    weight: dict[tuple[int, int, int, int], Element]
    bias: list[Element]
    image: list[Grid]


def symbols(case: Case, domain: Any = ZZ) -> Symbols:
    """A symbol for everything; polynomials in them are equal iff all their coefficients are."""
    (inputs, outputs), (rows, columns) = case.channels, case.size
    indices = [(o, c, *tap) for o in range(outputs) for c in case.mixed(o) for tap in case.taps]
    names = ["w" + "_".join(map(str, index)) for index in indices]
    names += [f"b{o}" for o in range(outputs)]
    names += [f"x{c}_{i}_{j}" for c in range(inputs) for i, j in pixels(case.size)]
    polynomials, *generators = ring(names, domain)
    left = iter(generators)
    return Symbols(
        zero=polynomials.zero,
        weight={index: next(left) for index in indices},
        bias=[next(left) for _ in range(outputs)],
        image=[[[next(left) for _ in range(columns)] for _ in range(rows)] for _ in range(inputs)],
    )


def pixels(size: Iterable[int]) -> list[Pixel]:
    """All (row, column) of a grid, row by row."""
    rows, columns = size
    return list(product(range(rows), range(columns)))


def convolution(case: Case, s: Symbols) -> dict[tuple[int, int, int], Element]:
    """The convolution by its definition, b + sum W x, on the image itself: by (output channel, row, column)."""
    outputs = {}
    for o, (i, j) in product(range(case.channels[1]), pixels(case.output)):
        total = s.bias[o]
        for c, (m, n) in product(case.mixed(o), case.taps):
            row = _inside(i * case.stride[0] + m * case.dilation[0] - case.pads[0], case.size[0], case.mode)
            column = _inside(j * case.stride[1] + n * case.dilation[1] - case.pads[2], case.size[1], case.mode)
            if row is not None and column is not None:
                total += s.weight[o, c, m, n] * s.image[c][row][column]
        outputs[o, i, j] = total
    return outputs


def _inside(index: int, length: int, mode: str) -> int | None:
    """Which pixel of the image a row or column stands for; None is a zero."""
    if 0 <= index < length:
        return index
    if mode == "reflect":
        return -index if index < 0 else 2 * (length - 1) - index
    if mode == "replicate":
        return min(max(index, 0), length - 1)
    return index % length if mode == "circular" else None


def pad(case: Case, s: Symbols) -> list[Grid]:
    """The padded image, channel by channel: the pixels that attention looks at."""
    top, bottom, left, right = case.pads
    padded = []
    for channel in s.image:
        wide = [_extend(row, left, right, case.mode, s.zero) for row in channel]
        blank = [s.zero] * case.padded[1]
        padded.append(_extend(wide, top, bottom, case.mode, blank))
    return padded


def _extend(line: list[Any], before: int, after: int, mode: str, blank: Any) -> list[Any]:
    """A line of pixels, or of lines, with what padding puts before and after it."""
    if mode == "reflect":
        return line[before:0:-1] + line + line[-2 : -2 - after : -1]
    if mode == "replicate":
        return [line[0]] * before + line + [line[-1]] * after
    if mode == "circular":
        return line[len(line) - before :] + line + line[:after]
    return [blank] * before + line + [blank] * after


def _by(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"


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
    """S j + d k - p: the output that pixel j is added to, times tap k. This is the definition."""
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
