"""Formulas for two kinds of reader, both printed from the one expression that a check decides.

A formula that a proof shows and a formula that its check computes with are the same object; nobody types the
LaTeX of something that sympy was given in other words.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from .claim import Formula

Part = Any  # an expression, a vector (tuple) of expressions, or a Formula; sympy has no complete types

_RELATIONS = {"=": "=", "<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "!=": r"\ne", "iff": r"\iff", "->": r"\to"}


class _Readable:
    """Prints d - D and 2 alpha D where sympy would print -D + d and 2 D alpha."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        terms = super()._as_ordered_terms(expr, order="lex")  # type: ignore[misc]
        return sorted(terms, key=lambda term: bool(term.could_extract_minus_sign()))

    def _print_Mul(self, expr: Any) -> str:  # noqa: N802 - sympy calls it by this name
        number, rest = expr.as_coeff_Mul()
        factors = sorted(rest.as_ordered_factors(), key=lambda factor: str(factor) != "alpha")
        return str(super()._print_Mul(sp.Mul(*([] if number == 1 else [number]), *factors, evaluate=False)))  # type: ignore[misc]


class _Latex(_Readable, LatexPrinter):  # type: ignore[misc]
    def _print_Transpose(self, expr: Any) -> str:  # noqa: N802 - as above
        return str(super()._print_Transpose(expr)).replace("^{T}", r"^{\top}")


class _Text(_Readable, StrPrinter):  # type: ignore[misc]
    pass


def show(part: Part) -> Formula:
    """The formula of an expression; of a tuple, as a vector."""
    if isinstance(part, Formula):
        return part
    if isinstance(part, tuple):
        shown = [show(entry) for entry in part]
        inner = ",\\; ".join(entry.latex for entry in shown)
        return Formula(rf"\left({inner}\right)", f"({', '.join(entry.text for entry in shown)})")
    settings = {"order": "none"}  # the order of factors that _Readable gives is kept
    return Formula(_Latex(settings).doprint(part), _Text(settings).doprint(part).replace("**", "^"))


def relate(*parts: Part, by: str = "=") -> Formula:
    """The parts with a relation between neighbours: =, <, <=, >, >=, !=, iff or ->."""
    shown = [show(part) for part in parts]
    latex = f" {_RELATIONS[by]} ".join(part.latex for part in shown)
    return Formula(latex, f" {by} ".join(part.text for part in shown))


def lines(*parts: Part) -> Formula:
    """The parts below each other."""
    shown = [show(part) for part in parts]
    return Formula(r" \\ ".join(part.latex for part in shown), "\n".join(part.text for part in shown))


def fill(latex: str, text: str, **parts: Part) -> Formula:
    """Words and signs around printed parts: ``$name`` stands for the part of that name, in both forms."""
    shown = {name: show(part) for name, part in parts.items()}
    return Formula(
        Template(latex).substitute({name: part.latex for name, part in shown.items()}),
        Template(text).substitute({name: part.text for name, part in shown.items()}),
    )


def scaled(factor: Any, vector: Sequence[Any]) -> Formula:
    """A vector with a common factor in front: the entries are printed after division by it."""
    outside, inside = show(factor), show(tuple(sp.cancel(entry / factor) for entry in vector))
    return Formula(f"{outside.latex} {inside.latex}", f"{outside.text} {inside.text}")


def dot(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """The inner product of two vectors, not simplified."""
    return sp.Add(*(a * b for a, b in zip(left, right, strict=True)))
