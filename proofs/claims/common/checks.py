"""Checks that several claims share: equal expressions, and steps that follow from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import sympy as sp

from ...prover.decide import unequal
from ...prover.old.claim import Check, Formula, Kind, Step
from ...prover.old.formula import relate, show


def inequalities(pairs: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The pairs that are not identical, each with what is left of the difference."""
    return [reason for name, (left, right) in pairs.items() for reason in unequal(left, right, name)]


def identity(name: str, left: Any, right: Any) -> Check:
    """Left equals right for all values of the symbols."""
    return Check(name, Kind.SYMBOLIC, lambda: inequalities({"the difference": (left, right)}))


def identities(name: str, pairs: Callable[[], Mapping[str, tuple[Any, Any]]]) -> Check:
    """All pairs are equal for all values of the symbols."""
    return Check(name, Kind.SYMBOLIC, lambda: inequalities(pairs()))


def constant(name: str, expression: Any, symbols: Sequence[sp.Symbol]) -> Check:
    """An expression does not depend on the symbols."""

    def run() -> list[str]:
        derivatives = {symbol: sp.simplify(sp.diff(expression, symbol)) for symbol in symbols}
        return [f"its derivative in {symbol} is {show(d).text}, not 0" for symbol, d in derivatives.items() if d != 0]

    return Check(name, Kind.SYMBOLIC, run)


def derivation(left: Formula, chain: Sequence[tuple[Any, str]]) -> tuple[Step, ...]:
    """The steps left = first, = second, ...: each expression with the rule that leads to it."""
    steps = []
    for number, (expression, rule) in enumerate(chain):
        formula = relate(left, expression) if number == 0 else Formula(*(f"= {s}" for s in _both(expression)))
        steps.append(Step(formula, rule))
    return tuple(steps)


def follows(name: str, chain: Sequence[tuple[Any, str]]) -> Check:
    """Every expression of a chain is equal to the one before it."""

    def run() -> list[str]:
        pairs = pairwise(chain)
        return inequalities({f"step {n}": (b[0], a[0]) for n, (a, b) in enumerate(pairs, start=2)})

    return Check(name, Kind.SYMBOLIC, run)


def _both(expression: Any) -> tuple[str, str]:
    shown = show(expression)
    return shown.latex, shown.text
