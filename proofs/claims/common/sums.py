"""Sums that are rounded, in every order of their terms, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

import sympy

Term = TypeVar("Term")

U = sympy.Symbol("u", positive=True)  # the unit of a rounding


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
