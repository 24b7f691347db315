"""Formats of floating point, and sums that are rounded, in every order of their terms, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeVar

import sympy

Term = TypeVar("Term")

U = sympy.Symbol("u", positive=True)  # the unit of a rounding


class Format(NamedTuple):
    """A binary format of IEEE 754: bits of the significand, p, and exponent of the smallest normal number, e_min."""

    precision: int
    smallest_exponent: int

    @property
    def zero_exponent(self) -> int:
        """Half of the smallest positive number is 2 to this."""
        return self.smallest_exponent - self.precision

    @property
    def top(self) -> int:
        """The power of two above the largest number."""
        return 2 - self.smallest_exponent

    @property
    def eps(self) -> Fraction:
        """The distance from 1 to the next number."""
        return Fraction(2, 2**self.precision)

    @property
    def largest(self) -> Fraction:
        """The largest number."""
        return Fraction(2) ** self.top * (1 - self.eps / 2)


def gamma(terms: Any, unit: Any = U) -> Any:
    """gamma_m = m u / (1 - m u)."""
    return terms * unit / (1 - terms * unit)


def round_to(value: Fraction, precision: int) -> Fraction:
    """The nearest number with a significand of ``precision`` bits, ties to even; without bounds on the exponent."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()  # of |value|, or 1 too large
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** (exponent - precision + 1)
    return round(value / unit) * unit


@cache
def shapes(leaves: int) -> tuple[object, ...]:
    """All ways to add up ``leaves`` terms by twos: nested pairs, with None for a term."""
    if leaves == 1:
        return (None,)
    return tuple((a, b) for left in range(1, leaves) for a in shapes(left) for b in shapes(leaves - left))


def folded(shape: object, terms: Iterator[Term], add: Callable[[Term, Term], Term]) -> Term:
    """The terms, added up by twos in this order."""
    return add(*(folded(part, terms, add) for part in shape)) if isinstance(shape, tuple) else next(terms)


def added(shape: object, terms: Iterable[Fraction], precision: int) -> Fraction:
    """The sum of the terms, added in this order and rounded after each addition."""
    return folded(shape, iter(terms), lambda left, right: round_to(left + right, precision))
