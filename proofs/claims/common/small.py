"""Small convolutions in symbols or in numbers, plain and transposed, and the attention that is to equal them.

All are along any number of axes. The convolution works out by index arithmetic what lies outside the image; the padded
image, on whose pixels attention looks, is made by adding pixels to the ends of lines. Neither knows of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Self

import sympy
from sympy import ZZ
from sympy.polys.rings import ring

from .scores import Point, dot, encoding, head_vector, minus, squared_distance

Element = Any  # of a polynomial ring, or a number


class Axis(NamedTuple):
    """One axis of a convolution, in numbers or in symbols.

    Attributes:
        pixels: L, of the input.
        taps: K.
        stride: s.
        dilation: d.
        before: p, the pixels that padding adds before the axis. A transposed convolution drops as many outputs there.
        after: p', the same after it.
        added: a, the outputs that a transposed convolution adds after the axis.
    """

    pixels: Any
    taps: Any
    stride: Any = 1
    dilation: Any = 1
    before: Any = 0
    after: Any = 0
    added: Any = 0

    def __str__(self) -> str:
        return (
            f"{self.pixels} pixels, {self.taps} taps, stride {self.stride}, dilation {self.dilation}, "
            f"padding {self.before}/{self.after}, output padding {self.added}"
        )


def padded(axis: Axis) -> Any:
    """P = p + L + p', the length of the padded axis."""
    return axis.before + axis.pixels + axis.after


def place(axis: Axis, output: Any, tap: Any) -> Any:
    """s i + d m: the place on the padded axis that tap m of output i reads."""
    return axis.stride * output + axis.dilation * tap


def outputs(axis: Axis) -> Any:
    """Number of outputs of a convolution."""
    return (padded(axis) - axis.dilation * (axis.taps - 1) - 1) // axis.stride + 1


def reached(axis: Axis, start: Any, tap: Any) -> Any:
    """s i + d k - p: the pixel that tap k of output i reads, or the output to which pixel i goes times tap k.

    This is the definition of a convolution, and of a transposed one.
    """
    return place(axis, start, tap) - axis.before


def transposed_outputs(axis: Axis) -> Any:
    """Number of outputs of a transposed convolution, as PyTorch defines it."""
    full = (axis.pixels - 1) * axis.stride + axis.dilation * (axis.taps - 1) + 1
    return full - axis.before - axis.after + axis.added


def points(size: Iterable[int]) -> list[Point]:
    """All points of a grid, the last axis fastest."""
    return list(product(*map(range, size)))


@dataclass(frozen=True)
class Case:
    """A small convolution.

    Attributes:
        axes: Its axes.
        channels: Input and output channels.
        groups: Groups of channels that do not mix.
        mode: Values of the added pixels: zeros, reflect, replicate or circular.
        is_transposed: Whether it is a transposed convolution.
    """

    axes: tuple[Axis, ...]
    channels: tuple[int, int] = (1, 1)
    groups: int = 1
    mode: str = "zeros"
    is_transposed: bool = False

    @classmethod
    def sized(
        cls,
        size: Point,
        kernel: Point,
        *,
        stride: Point | None = None,
        dilation: Point | None = None,
        pads: Sequence[tuple[int, int]] | None = None,
        **others: Any,
    ) -> Self:
        """The case of an image of this size; each argument has an entry for each axis, ``pads`` both of its ends."""
        ones = (1,) * len(size)
        ends = zip(*(pads or [(0, 0)] * len(size)), strict=True)
        return cls(tuple(map(Axis, size, kernel, stride or ones, dilation or ones, *ends)), **others)

    def __str__(self) -> str:
        axes = " by ".join(f"({axis})" for axis in self.axes)
        return f"{axes}, channels {self.channels[0]}->{self.channels[1]}, groups {self.groups}, {self.mode}"

    def along(self, each: Callable[..., int], *places: Point) -> Point:
        """The value for each axis of a function of the axis and of the places along it."""
        return tuple(map(each, self.axes, *places))

    @property
    def taps(self) -> list[Point]:
        """The taps of the kernel."""
        return points(axis.taps for axis in self.axes)

    @property
    def pixels(self) -> list[Point]:
        """The pixels of the image."""
        return points(axis.pixels for axis in self.axes)

    @property
    def outputs(self) -> list[Point]:
        """The pixels of the output."""
        return points(map(transposed_outputs if self.is_transposed else outputs, self.axes))

    @property
    def mixed(self) -> list[tuple[int, int]]:
        """Pairs of an output and an input channel of the same group."""
        inputs, results = (count // self.groups for count in self.channels)
        pairs = product(range(self.channels[1]), range(self.channels[0]))
        return [(o, c) for o, c in pairs if o // results == c // inputs]

    @property
    def of_padded(self) -> Case:
        """The same convolution of an image that was padded before."""
        axes = (axis._replace(pixels=padded(axis), before=0, after=0) for axis in self.axes)
        return replace(self, axes=tuple(axes), mode="zeros")


@dataclass(frozen=True)
class Entries:
    """Weights, biases and pixels of a convolution: elements of a ring, or numbers.

    Attributes:
        zero: Zero of the ring.
        weight: By (output channel, input channel, *tap), within the groups. A transposed convolution's are by (input
            channel, output channel, *tap), as in PyTorch.
        bias: By output channel.
        image: By (channel, *pixel).
    """

    zero: Element
    weight: dict[Point, Element]
    bias: list[Element]
    image: dict[Point, Element]


def entries(case: Case, draw: Callable[[], Element]) -> Entries:
    """Draws weights, then biases, then pixels."""
    pairs = [(c, o) if case.is_transposed else (o, c) for o, c in case.mixed]
    weight = {(*pair, *tap): draw() for pair in pairs for tap in case.taps}
    bias = [draw() for _ in range(case.channels[1])]
    image = {(c, *pixel): draw() for c in range(case.channels[0]) for pixel in case.pixels}
    return Entries(bias[0] * 0, weight, bias, image)


def symbols(case: Case, domain: Any = ZZ) -> Entries:
    """A symbol for everything; polynomials in them are equal if and only if all their coefficients are."""
    indices = entries(case, int)
    names = [f"w{_joined(index)}" for index in indices.weight]
    names += [f"b{o}" for o in range(case.channels[1])]
    names += [f"x{_joined(index)}" for index in indices.image]
    _, *generators = ring(names, domain)
    return entries(case, iter(generators).__next__)


def _joined(index: Point) -> str:
    return "_".join(map(str, index))


def convolution_of(case: Case, s: Entries) -> dict[Point, Element]:
    """The convolution by its definition, b + sum W x, on the image itself: by (output channel, *output)."""
    found = _biases(case, s)
    for output, tap in product(case.outputs, case.taps):
        starts = case.along(reached, output, tap)
        pixel = [_inside(start, axis.pixels, case.mode) for start, axis in zip(starts, case.axes, strict=True)]
        if None not in pixel:
            for o, c in case.mixed:
                found[o, *output] += s.weight[o, c, *tap] * s.image[c, *pixel]
    return found


def transposed_convolution(case: Case, s: Entries) -> dict[Point, Element]:
    """The same of a transposed convolution: every pixel times every tap is added where it lands."""
    found = _biases(case, s)
    for (c, o, *tap), weight in s.weight.items():
        for pixel in case.pixels:
            output = (o, *case.along(reached, pixel, tuple(tap)))
            if output in found:
                found[output] += weight * s.image[c, *pixel]
    return found


def _biases(case: Case, s: Entries) -> dict[Point, Element]:
    return {(o, *output): s.bias[o] for o, output in product(range(case.channels[1]), case.outputs)}


def _inside(index: int, length: int, mode: str) -> int | None:
    """The pixel that a place along an axis stands for; None is a zero."""
    if 0 <= index < length:
        return index
    if mode == "reflect":
        return -index if index < 0 else 2 * (length - 1) - index
    if mode == "replicate":
        return min(max(index, 0), length - 1)
    return index % length if mode == "circular" else None


def pad(case: Case, s: Entries) -> dict[Point, Element]:
    """The padded image, by (channel, *key): the pixels that attention looks at."""
    lines = [_extended(list(range(axis.pixels)), axis.before, axis.after, case.mode) for axis in case.axes]
    sources = list(zip(padded_keys(case), product(*lines), strict=True))
    return {
        (c, *key): s.zero if None in pixel else s.image[c, *pixel]
        for c in range(case.channels[0])
        for key, pixel in sources
    }


def _extended(line: list[int], before: int, after: int, mode: str) -> list[Any]:
    """A line of pixels with those that padding puts before and after it; negative padding takes pixels away."""
    if mode == "reflect":
        return line[before:0:-1] + line + line[-2 : -2 - after : -1]
    if mode == "replicate":
        return [line[0]] * before + line + [line[-1]] * after
    if mode == "circular":
        return line[len(line) - before :] + line + line[:after]
    return [None] * before + line[max(-before, 0) : len(line) + min(after, 0)] + [None] * after


def middle(taps: Any) -> Any:
    """m0 = floor((K - 1) / 2): the tap that a query sits under."""
    return (taps - 1) // 2


def query_position(case: Case, output: Point) -> Point:
    """Query i sits at s i + d m0 of the padded image on each axis, under the kernel's middle tap."""
    return case.along(place, output, case.along(lambda axis: middle(axis.taps)))


def head_center(case: Case, tap: Point) -> Point:
    """The head of tap m has its centre at d (m - m0) on each axis: the tap's offset from the middle one."""
    return case.along(lambda axis, m: axis.dilation * (m - middle(axis.taps)), tap)


def padded_keys(case: Case) -> list[Point]:
    """The pixels of the padded image."""
    return points(map(padded, case.axes))


def score(delta: Point, center: Point) -> int:
    """v . r_delta for alpha = 1."""
    return int(dot(encoding(delta), head_vector(center, 1)))


Positions = Callable[[Case, Point], Point]
Keys = Callable[[Case], list[Point]]
Score = Callable[[Point, Point], int]
Probabilities = Callable[[Case, Point, Point], Mapping[Point, Any]]  # of the keys, for a query and a centre


def one_hot(
    case: Case, query: Point, center: Point, *, score: Score = score, keys: Keys = padded_keys
) -> dict[Point, Any]:
    """The limit of softmax(alpha scores) as alpha grows: the keys with the highest score share what there is."""
    scores = {key: score(minus(key, query), center) for key in keys(case)}
    highest = max(scores.values())
    best = [key for key, found in scores.items() if found == highest]
    return dict.fromkeys(best, sympy.Rational(1, len(best)))


def softmax(size: Point, target: Point, q: Any) -> dict[Point, Any]:
    """softmax_k(-alpha |k - t|^2) over a grid of this size, with q = exp(-alpha)."""
    weights = {key: q ** squared_distance(key, target) for key in points(size)}
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


def attention(
    case: Case,
    s: Entries,
    probabilities: Probabilities = one_hot,
    *,
    query: Positions = query_position,
    center: Positions = head_center,
) -> dict[Point, Element]:
    """b + sum over heads of W_Delta sum_k p_k x_k, by (output channel, *output).

    Args:
        case: The geometry.
        s: Weights, biases and pixels.
        probabilities: The attention of a head.
        query: Where an output's query sits.
        center: Where a tap's head looks, from its query.
    """
    values, found = pad(case, s), _biases(case, s)
    for output, tap in product(case.outputs, case.taps):
        shares = probabilities(case, query(case, output), center(case, tap))
        read = [sum((values[c, *key] * p for key, p in shares.items()), s.zero) for c in range(case.channels[0])]
        for o, c in case.mixed:
            found[o, *output] += s.weight[o, c, *tap] * read[c]
    return found
