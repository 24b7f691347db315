"""An operation as the table (``table.py``) has it: exact bounds, a linear map near a point, and how often it rounds.

Let c be our own float64 numbers and a another program's, within their ranges. The bounds of an operation f say how far
a program's result is from f(a); near c, f(a) is compared with the number v that our own run goes on with:

    f(a) = v + J (a - c) + s,        |s| <= rest

with a J that both sides use. Linear maps leave nothing. The claim ``chords`` (``proofs/claims/certificate/ranges.py``)
derives what the others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...bounds.rounding import OUTWARD
from .call import Call
from .interval import Arithmetic, Interval, Products, UnboundedError

Map = Callable[..., Tensor]
Count = Callable[[Call], int]


@dataclass(frozen=True)
class Exact:
    """The exact result of an operation, and what its rounding is relative to.

    Attributes:
        bounds: On the result; the error is what the operation makes of its operands' errors.
        scale: Bound on the sum of the absolute values of all terms.
        lost: As for ``Arithmetic.rounded``.
        reach: As for ``Arithmetic.rounded``.
        products: What a hypothesis says of sums of products.
    """

    bounds: Interval
    scale: Tensor
    lost: Tensor | float = 0.0
    reach: Tensor | None = None
    products: Products | None = None

    def shifted(self, shift: Tensor | Interval | None) -> Exact:
        """With a number or bounds added, moved out by what adding them here rounds."""
        if shift is None:
            return self
        x, by = self.bounds, shift if isinstance(shift, Interval) else Interval.point(shift)
        scale = self.scale + by.largest
        outward = scale * (OUTWARD - 1)
        bounds = Interval(x.low + by.low - outward, x.high + by.high + outward, x.error + by.error)
        return Exact(bounds, scale * OUTWARD, self.lost, self.reach, self.products)

    def rounded(self, arithmetic: Arithmetic, terms: int, narrowings: int = 1, *, same: bool = False) -> Interval:
        """Bounds on the computed result (``Arithmetic.rounded``).

        Raises:
            UnboundedError: Something may overflow.
        """
        return arithmetic.rounded(
            self.bounds,
            self.scale,
            terms,
            same=same,
            lost=self.lost,
            reach=self.reach,
            narrowings=narrowings,
            products=self.products,
        )


@dataclass(frozen=True)
class Local:
    """An operation near a point.

    Attributes:
        value: The number that our own run goes on with.
        apply: J, of the differences of every operand that depends on the image, in any precision.
        absolute: |J| or more; None where no entry of J is negative.
        rounded: The part of |J| whose products and sums round; None where J only moves numbers.
        rest: Bound on what J leaves, or None for nothing.
        terms: Roundings of a term of J.
        is_sum: Whether the range of the result is to be tested: it follows from its operands' ranges badly.
        box: Ends of the result's range but for ``rest``, where the rule's are far out.
        passes: The numbers whose range passes a kink, or None for operations without kinks.
    """

    value: Tensor
    apply: Map
    absolute: Map | None = None
    rounded: Map | None = None
    rest: Tensor | None = None
    terms: int = 1
    is_sum: bool = True
    box: tuple[Tensor, Tensor] | None = None
    passes: Tensor | None = None

    @classmethod
    def weighted(cls, value: Tensor, apply: Map, absolute: Map, rest: Tensor | None = None, terms: int = 1) -> Local:
        """A map with weights."""
        return cls(value, apply, absolute, absolute, rest, terms)


@dataclass(frozen=True)
class Point(Interval):
    """A range of every program's numbers, with our own number in it or beside it.

    Attributes:
        center: Our own float64 run's.
        step: The number of the step that it is the result of.
        owed: Rounding that the next operation passes on with its own.
        columns: Pilot numbers, [columns, *shape].
    """

    center: Tensor
    step: int
    owed: Tensor | None = None
    columns: Tensor | None = None

    @property
    def hull(self) -> Interval:
        """The range, with the center in it."""
        return Interval(torch.minimum(self.low, self.center), torch.maximum(self.high, self.center), self.error)

    @property
    def radius(self) -> Tensor:
        """The farthest that a program's number is from the center."""
        return torch.maximum(self.high - self.center, self.center - self.low).clamp(min=0) * OUTWARD


def exactly(count: int) -> Count:
    """The same number of roundings for every call."""
    return lambda call: count


_ONCE = exactly(1)


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    Attributes:
        bounds: Bounds on its result: ``Exact``, which the table rounds; or what is rounded already, or never.
        near: It near a point, ``Local``; a list of them where it gives several tensors.
        terms: Roundings of a term in the precision that is computed in; None where nothing rounds.
        narrowings: Roundings to the precision of the tensors.
    """

    bounds: Callable[[Call], Any]
    near: Callable[[Call], Any]
    terms: Count | None = None
    narrowings: Count = _ONCE

    @classmethod
    def of(cls, describe: Callable[[Call], Any], terms: Count | None = None, narrowings: Count = _ONCE) -> Operation:
        """A row of what has both columns as methods."""
        return cls(lambda call: describe(call).bounds(call), lambda call: describe(call).near(call), terms, narrowings)


def point_of(call: Call) -> Point:
    """The first operand, as a range with a center.

    Raises:
        UnboundedError: It is constant.
    """
    found = call.x
    if not isinstance(found, Point):
        raise UnboundedError(f"no slope is known for {call.name} of a constant")
    return found


def number(value: Any) -> Tensor:
    """Our own run's number for an operand."""
    if isinstance(value, Point):
        return value.center
    return (
        value.detach().cpu().double()
        if isinstance(value, Tensor)
        else torch.tensor(float(value), dtype=torch.float64, device="cpu")
    )


def sized(value: Tensor | Interval) -> Tensor:
    """The largest absolute value of each number."""
    return value.largest if isinstance(value, Interval) else value.double().abs()


def points_in(values: Iterable[Any]) -> list[Point]:
    """Those of an operation's arguments that are ranges with a center."""
    return [one for one in values if isinstance(one, Point)]


def like(constant: Tensor, t: Tensor) -> Tensor:
    """A constant in the precision of what it is multiplied with."""
    return constant.to(t.dtype)


def along(values: Tensor, axes: int, channels: int = 1) -> Tensor:
    """A number for each channel, in the shape that a tensor of so many dimensions is multiplied with."""
    return values.view(-1, *[1] * (0 if channels < 0 else axes - channels - 1))
