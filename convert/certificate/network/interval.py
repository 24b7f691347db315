"""Bounds on a tensor of two programs: on its values, and on how far these are apart.

An ``Interval`` is a box and an error for every entry. The claim ``error-propagation``
(``proofs/claims/certificate/propagation.py``) says how operations act on it: an affine map with weights w takes an
error e to sum |w| e, a map with Lipschitz constant L to L e; and since both programs compute the operation in floating
point, twice its rounding is added. Where the errors of all inputs are 0 and calls are repeatable, both programs do the
same operation on the same numbers, and the error stays 0. The rules themselves are derived in
``proofs/claims/certificate/propagation.py``.

Under a hypothesis, which names a class of programs, an error is that of one program against the exact operation on the
program's own operands:

    any order    of m products, m - 1 additions err by u |partial sum|, and partial sums are between the sum N of the
                 negative terms and the sum P of the positive ones: |N|, P <= (total + |result|) / 2 (claim
                 ``partial-sums``, ``proofs/claims/certificate/ranges.py``)
    once         u |result|: computed in double precision, and rounded once
    exact        none: what is left is our own run in float64

To each, the rounding of our own run in float64 is added, whose convolutions add up blocks of products (``blocks``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ...bounds.rounding import OUTWARD, gamma, unit_roundoff
from ...errors import first_line
from ...heads.encoding import DOUBLE

U64 = DOUBLE
BLOCK = 64  # products that our own run adds up before their sums are added
HYPOTHESES = ("once", "any order")
EXACT = "exact"


class UnboundedError(Exception):
    """An operation for which no bound is known; the text says why."""


@contextmanager
def of_rule() -> Iterator[None]:
    """Makes torch's own refusal of what a rule asks of it one of the rule.

    Raises:
        UnboundedError: torch cannot compute it.
    """
    try:
        yield
    except RuntimeError as error:  # and NotImplementedError, which is one
        raise UnboundedError(f"torch cannot compute its bound: {first_line(error)[:200]}") from error


class Known:
    """Bounds on a tensor that depends on the images, or that the network computes from constants."""


@dataclass(frozen=True)
class Interval(Known):
    """Bounds on each entry of a tensor, in double precision, on the CPU, all three of the tensor's shape.

    Attributes:
        low: No value of either program is smaller.
        high: No value of either program is larger.
        error: No two values at the same place differ by more.
    """

    low: Tensor
    high: Tensor
    error: Tensor

    @classmethod
    def point(cls, values: Tensor) -> Interval:
        """The same numbers in both programs."""
        exact = values.detach().double().cpu()
        return cls(exact, exact, torch.zeros_like(exact))

    @property
    def largest(self) -> Tensor:
        """Largest absolute value."""
        return torch.maximum(self.low.abs(), self.high.abs())

    @property
    def is_equal(self) -> bool:
        """Whether both programs are known to have the same numbers here."""
        return not bool(self.error.any())

    def map(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """Applies to the bounds a function that moves entries or takes maxima of them."""
        return Interval(function(self.low), function(self.high), function(self.error))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, self.error)


@dataclass(frozen=True)
class Products:
    """Sums of products under a hypothesis.

    Attributes:
        terms: Products and bias of each sum that are not 0 in every program, or their largest number.
        blocks: Roundings of a term in our own run.
    """

    terms: Tensor | int
    blocks: int


@dataclass(frozen=True)
class Arithmetic:
    """Rounding of an operation.

    Attributes:
        dtype: The precision of its operands and its result.
        repeatable: Whether a call gives the same numbers for the same operands in both programs.
        hypothesis: The class of programs, one of ``HYPOTHESES`` or "exact", of which one is held against the exact
            operation; None for two programs.
    """

    dtype: torch.dtype
    repeatable: bool = True
    hypothesis: str | None = None

    @property
    def computed(self) -> torch.dtype:
        """The precision it is computed in, at least float32."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def is_narrow(self) -> bool:
        """Whether results are rounded to less than what is computed in."""
        return self.computed != self.dtype

    @property
    def smallest(self) -> float:
        """The smallest normal number of that precision; smaller ones may be taken for 0."""
        return torch.finfo(self.computed).smallest_normal

    @property
    def step(self) -> float:
        """The smallest number of the dtype."""
        limits = torch.finfo(self.dtype)
        return limits.smallest_normal * limits.eps

    def relative(self, terms: int, narrowings: int = 1) -> float:
        """Relative error of a sum of so many products, accumulated in at least float32 and rounded to the dtype."""
        narrowing = unit_roundoff(self.dtype) if self.is_narrow else 0.0
        summed = gamma(terms, unit_roundoff(self.computed))
        return (1 + summed) * (1 + narrowing) ** narrowings - 1

    def held(self, value: float) -> float:
        """A number as a tensor of the dtype holds it; infinite if it is too large."""
        return float(torch.tensor(value, dtype=self.dtype, device="cpu"))

    def scalar(self, value: float) -> Interval:
        """A number as an operand, which is rounded to the dtype if that does not hold it.

        Raises:
            UnboundedError: It is too large for the precision that is computed in, or not a number.
        """
        if not abs(value) <= torch.finfo(self.computed).max:
            raise UnboundedError(f"the number {value} is no finite number of {self.computed}")
        spread = 0.0
        if self.held(value) != value:
            spread = unit_roundoff(self.dtype) * abs(value) * OUTWARD + self.smallest
        sides = 1 if self.hypothesis else 2
        error = 0.0 if self.repeatable else sides * spread * OUTWARD  # another program may not round it
        ends = (torch.tensor(end, dtype=torch.float64, device="cpu") for end in (value - spread, value + spread, error))
        return Interval(*ends)

    def rounded(
        self,
        exact: Interval,
        scale: Tensor,
        terms: int,
        *,
        same: bool,
        lost: Tensor | float = 0.0,
        reach: Tensor | None = None,
        narrowings: int = 1,
        products: Products | None = None,
    ) -> Interval:
        """Bounds on the computed result of an operation.

        No partial sum exceeds (1 + its relative error) times the sum of all absolute values. Where that is below the
        largest number of what is computed in, or of the dtype if more than the result is rounded to it, nothing
        overflows on the way.

        Args:
            exact: Bounds on its exact result; the error is what the operation makes of its inputs' errors.
            scale: Bound on the sum of the absolute values of all terms.
            terms: Number of roundings that a term goes through.
            same: Whether both programs do it on the same numbers.
            lost: Error where operands are taken for 0, besides 5 times ``smallest`` a term (claim
                ``underflow-errors``).
            reach: Bound on the absolute values of what is computed on the way, if they may be larger than ``scale``.
            narrowings: Number of times a term is rounded to the dtype, if it is narrower than the computing precision.
            products: What is known of sums of products under a hypothesis.

        Raises:
            UnboundedError: Something may overflow.
        """
        relative = self.relative(terms, narrowings)
        between = torch.finfo(self.computed if narrowings == 1 else self.dtype)
        largest = (scale if reach is None else reach) * (1 + relative)
        if not bool((largest < between.max).all()):
            raise UnboundedError("what is computed on the way may exceed the largest number of its dtype")
        underflow = (lost + 5 * terms * self.smallest) * (1 + relative)
        if self.is_narrow:
            underflow = underflow + narrowings * self.step * (1 + relative)
        rounding = scale * relative + underflow
        if self.hypothesis is not None:
            rounding = self._of_one(self.hypothesis, exact, scale, terms, narrowings, products, underflow)
            low, high = exact.low - rounding, exact.high + rounding
            limit = torch.finfo(self.dtype).max
            return checked(Interval(low, high, (exact.error + rounding) * OUTWARD), limit, clip=False)
        low, high = exact.low - rounding, exact.high + rounding
        error = torch.zeros_like(low) if same and self.repeatable else (exact.error + 2 * rounding) * OUTWARD
        return checked(Interval(low, high, error), torch.finfo(self.dtype).max)

    def _of_one(
        self,
        hypothesis: str,
        exact: Interval,
        scale: Tensor,
        terms: int,
        narrowings: int,
        products: Products | None,
        underflow: Tensor | float,
    ) -> Tensor:
        """Bound on |computed - exact| of a program, and of our own run in float64 beside it."""
        own = scale * gamma(terms if products is None else products.blocks, U64)
        if hypothesis == EXACT:
            return own + underflow
        result = exact.largest
        if hypothesis == "once":
            double = scale * gamma(terms, U64)
            return unit_roundoff(self.dtype) * (result + double) + double + underflow + own
        rounding = scale * self.relative(terms, narrowings)
        if products is not None and (narrowings == 1 or not self.is_narrow):
            sharp, unit = self._added(scale, result, products), unit_roundoff(self.dtype) if self.is_narrow else 0.0
            rounding = torch.minimum(rounding, sharp * (1 + unit) + result * unit)
        return rounding + underflow + own

    def _added(self, total: Tensor, result: Tensor, products: Products) -> Tensor:
        """Bound on the rounding of sums of products in any order."""
        unit = unit_roundoff(self.computed)
        additions = (torch.as_tensor(products.terms, dtype=torch.float64, device="cpu") - 1).clamp(min=0) * unit
        if not bool((additions < 1).all()):
            return torch.full_like(total, math.inf)
        return additions / (1 - additions) * (1 + unit) * (total + result) / 2 + unit * total


def checked(interval: Interval, limit: float = math.inf, *, clip: bool = True) -> Interval:
    """The interval, with errors no larger than the values allow.

    Raises:
        UnboundedError: Values may exceed the limit of the dtype, or are not bounded.
    """
    if not bool((interval.largest < limit).all()) or bool(interval.error.isnan().any()):
        raise UnboundedError("values may exceed the largest number of the dtype")
    if not clip:
        return interval
    return Interval(interval.low, interval.high, torch.minimum(interval.error, _width(interval.low, interval.high)))


def _width(low: Tensor, high: Tensor) -> Tensor:
    """high - low, rounded up, also where a processor takes the difference for 0."""
    width = (high - low).clamp(min=torch.finfo(low.dtype).smallest_normal)
    return torch.where(high == low, 0.0, torch.nextafter(width, torch.full_like(width, math.inf)))


def linear_map(
    x: Interval, apply: Callable[[Tensor], Tensor], absolute: Callable[[Tensor], Tensor]
) -> tuple[Interval, Tensor]:
    """Bounds on the exact result of a linear map of one tensor, moved out by what computing them here rounds.

    Args:
        x: Bounds on its input.
        apply: The map, in double precision.
        absolute: The map with the absolute values of its weights.

    Returns:
        The bounds, and one on the sum of the absolute values of all terms.
    """
    is_point, is_equal = x.low is x.high or torch.equal(x.low, x.high), x.is_equal
    middle, scale = apply(x.low if is_point else (x.low + x.high) / 2), absolute(x.largest)
    radius = scale * (OUTWARD - 1)
    if not is_point:
        radius += absolute((x.high - x.low) / 2)
    error = torch.zeros_like(middle) if is_equal else absolute(x.error) * OUTWARD
    return Interval(middle - radius, middle + radius, error), scale * OUTWARD
