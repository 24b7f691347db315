"""Checks that many claims use, made from the expressions that their texts print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import sympy as sp

from .claim import Check
from .decide import plain, unequal

Pairs = Mapping[str, tuple[Any, Any]]


def equal(name: str, left: Any, right: Any) -> Check:
    """Left equals right for all values of the symbols."""
    return Check(name, lambda: unequal(left, right, "the difference"))


def all_equal(name: str, pairs: Pairs | Callable[[], Pairs], cases: str = "") -> Check:
    """Each pair is equal for all values of the symbols; a function makes the pairs when the check runs."""

    def run() -> list[str]:
        made = pairs() if callable(pairs) else pairs
        return [reason for what, (left, right) in made.items() for reason in unequal(left, right, what)]

    return Check(name, run, cases)


def chained(name: str, *expressions: Any) -> Check:
    """Every expression is equal to the one before it."""
    return all_equal(name, {f"step {n}": (b, a) for n, (a, b) in enumerate(pairwise(expressions), start=2)})


def constant(name: str, expression: Any, symbols: Sequence[sp.Symbol]) -> Check:
    """An expression does not depend on the symbols."""

    def run() -> list[str]:
        derivatives = {symbol: sp.simplify(sp.diff(expression, symbol)) for symbol in symbols}
        return [f"its derivative in {symbol} is {plain(d)}, not 0" for symbol, d in derivatives.items() if d != 0]

    return Check(name, run)
