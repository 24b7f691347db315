"""The decisions that checks are made of: equality of expressions, and steps that follow from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from conv2attn.proofs.claim import Check, Formula, Kind, Step
from conv2attn.proofs.formula import relate, show


def remainder(left: Any, right: Any) -> Any:
    """left - right, brought to 0 if sympy can show that it is 0 for all values of the symbols.

    For polynomials ``expand`` decides; what it leaves goes to ``simplify``. Matrix expressions, with symbolic
    dimensions, are multiplied out into sums of products.
    """
    if isinstance(left, MatrixExpr):
        return (left - right).expand().doit()
    rest = sp.expand(left - right)
    return rest if rest == 0 else sp.simplify(rest)


def is_zero(rest: Any) -> bool:
    """Whether what ``remainder`` left is nothing."""
    return bool(rest.is_ZeroMatrix) if isinstance(rest, MatrixExpr) else bool(rest == 0)


def inequalities(pairs: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The pairs that are not identical, each with what is left of the difference."""
    found = []
    for name, (left, right) in pairs.items():
        rest = remainder(left, right)
        if not is_zero(rest):
            found.append(f"{name}: {show(left).text} - ({show(right).text}) = {show(rest).text}, not 0")
    return found


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
