"""Decisions by sympy, and the checks that many claims make of them.

Whether two expressions are equal, or one is never negative: each decision returns the reasons for a refusal, empty if
the answer is yes. "Unknown" is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import sympy
from sympy.matrices.expressions.matexpr import MatrixExpr

from .claim import Check

Expr = Any  # a sympy expression; sympy's own annotations do not tell numbers, symbols and booleans apart
Pairs = Mapping[str, tuple[Any, Any]]


def plain(expression: Expr) -> str:
    """The expression as one line of text."""
    return str(expression).replace("**", "^")


def remainder(left: Expr, right: Expr) -> Expr:
    """left - right, brought to 0 if sympy can show that it is 0 for all values of the symbols.

    For polynomials ``expand`` decides; what it leaves goes to ``simplify``. Matrix expressions, with symbolic
    dimensions, are multiplied out into sums of products.
    """
    if isinstance(left, MatrixExpr):
        return (left - right).expand().doit()
    rest = sympy.expand(left - right)
    return rest if rest == 0 else sympy.simplify(rest)


def is_zero(rest: Expr) -> bool:
    """Whether a remainder, a number or a matrix, is 0."""
    return bool(rest.is_ZeroMatrix) if isinstance(rest, MatrixExpr) else bool(rest == 0)


def unequal(left: Expr, right: Expr, what: str) -> list[str]:
    """Returns the difference as a failure unless left equals right for all values of the symbols."""
    rest = remainder(left, right)
    return [] if is_zero(rest) else [f"{what}: {plain(left)} - ({plain(right)}) = {plain(rest)}, not 0"]


def not_nonnegative(expression: Expr, what: str) -> list[str]:
    """Returns a failure unless the expression is at least 0 under its symbols' assumptions."""
    expression = sympy.expand(expression)
    return [] if expression.is_nonnegative else [f"{what}: {expression} is not known to be at least 0"]


def not_positive(expression: Expr, what: str) -> list[str]:
    """Returns a failure unless the expression is greater than 0 under its symbols' assumptions."""
    expression = sympy.expand(expression)
    return [] if expression.is_positive else [f"{what}: {expression} is not known to be positive"]


def has_negative_coefficient(expression: Expr, what: str) -> list[str]:
    """Returns a failure unless a rational function of positive symbols is a quotient without negative coefficients.

    Such a quotient is at least 0 wherever the symbols are positive. A function of 0 < q < 1 is brought into this
    form by ``on_unit_interval``.
    """
    fraction = sympy.fraction(sympy.factor(sympy.together(expression)))
    for polynomial in map(sympy.expand, fraction):
        symbols = sorted(polynomial.free_symbols, key=str)
        coefficients = sympy.Poly(polynomial, *symbols).coeffs() if symbols else [polynomial]
        if not all(coefficient >= 0 for coefficient in coefficients):
            return [f"{what}: {polynomial} has a negative coefficient"]
    return []


def on_unit_interval(expression: Expr, q: Expr) -> Expr:
    """The expression at q = 1 / (1 + s): s > 0 runs through exactly what 0 < q < 1 does."""
    return sympy.together(expression.subs(q, 1 / (1 + sympy.Symbol("s", positive=True))))


def equal(name: str, left: Any, right: Any) -> Check:
    """Left equals right for all values of the symbols."""
    return Check(name, lambda: unequal(left, right, "the difference"))


def all_equal(name: str, pairs: Pairs | Callable[[], Pairs], cases: str = "") -> Check:
    """Each pair is equal for all values of the symbols; a function makes the pairs when the check runs."""

    def run() -> list[str]:
        made = pairs() if callable(pairs) else pairs
        return [reason for what, (left, right) in made.items() for reason in unequal(left, right, what)]

    return Check(name, run, cases)


def nonnegative(name: str, *expressions: Any) -> Check:
    """Every expression is at least 0 under its symbols' assumptions."""
    return Check(name, lambda: [reason for each in expressions for reason in not_nonnegative(each, "the expression")])


def positive_form(name: str, expression: Any) -> Check:
    """An expression is a quotient without negative coefficients, so at least 0 where its symbols are positive."""
    return Check(name, lambda: has_negative_coefficient(expression, plain(expression)))


def invertible(name: str, matrices: Mapping[str, Any]) -> Check:
    """Every matrix is square and has a determinant that is not 0 under its symbols' assumptions."""

    def run() -> list[str]:
        singular = {what: m for what, m in matrices.items() if not (m.is_square and sympy.simplify(m.det()).is_nonzero)}
        return [f"{what} of shape {matrix.shape} is not known to be invertible" for what, matrix in singular.items()]

    return Check(name, run)


def chained(name: str, *expressions: Any) -> Check:
    """Every expression is equal to the one before it."""
    return all_equal(name, {f"step {n}": (b, a) for n, (a, b) in enumerate(pairwise(expressions), start=2)})


def constant(name: str, expression: Any, symbols: Sequence[sympy.Symbol]) -> Check:
    """An expression does not depend on the symbols."""

    def run() -> list[str]:
        derivatives = {symbol: sympy.simplify(sympy.diff(expression, symbol)) for symbol in symbols}
        return [f"its derivative in {symbol} is {plain(d)}, not 0" for symbol, d in derivatives.items() if d != 0]

    return Check(name, run)
