"""Fields in a claim's text: each ``{=expression}`` becomes the LaTeX of what it names.

Nobody types the LaTeX of something that sympy was given in other words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter

_FIELD = re.compile(r"\{=([^{}]+)\}")
# Between these a sum needs no brackets: the ends of the formula, relations, brackets, commas, a plus before it.
_OPENED = re.compile(r"(?:^|[=<>(\[{,:;&$|+]|\\(?:le|ge|to|iff|implies|q?quad|\\|lbrace|left[(\[|]?|begin\{\w+\}))$")
_CLOSED = re.compile(r"$|[=<>)\]},.:;&$|+-]|\\(?:le|ge|to|iff|implies|q?quad|\\|rbrace|right|text|end)")
_SPACE = r"(?:\\[,;:! ]|\s)"  # nothing between two factors


class _Printer(LatexPrinter):  # type: ignore[misc]
    """Prints d - D and 2 alpha D where sympy would print -D + d and 2 D alpha."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        terms = super()._as_ordered_terms(expr, order="lex")
        return sorted(terms, key=lambda term: bool(term.could_extract_minus_sign()))

    def _print_Mul(self, expr: Any) -> str:  # noqa: N802 - sympy calls it by this name
        number, rest = expr.as_coeff_Mul()
        factors = sorted(rest.as_ordered_factors(), key=lambda factor: str(factor) != "alpha")
        return str(super()._print_Mul(sp.Mul(*([] if number == 1 else [number]), *factors, evaluate=False)))

    def _print_Transpose(self, expr: Any) -> str:  # noqa: N802 - as above
        return str(super()._print_Transpose(expr)).replace("^{T}", r"^{\top}")


def latex(part: Any) -> str:
    """The LaTeX of an expression; of a tuple, as a vector; a text stands for itself."""
    if isinstance(part, str):
        return part
    if isinstance(part, tuple | list):
        return r"\left(" + ", ".join(map(latex, part)) + r"\right)"
    if isinstance(part, Fraction):
        part = sp.Rational(part.numerator, part.denominator)
    return str(_Printer({"order": "none"}).doprint(part))  # the order of factors that the printer gives is kept


def fill(text: str, names: Mapping[str, Any]) -> str:
    """The text with the LaTeX of every field; sums and negative numbers get brackets where they need them.

    Args:
        text: Markdown with LaTeX.
        names: Values that the fields' expressions may name, besides ``scaled``.

    Raises:
        NameError: A field names anything else.
    """

    def replaced(found: re.Match[str]) -> str:
        part = eval(found[1], {"scaled": scaled, **names})  # our own docstrings
        shown = latex(part)
        before, after = text[: found.start()].rpartition("\n")[2], text[found.end() :].partition("\n")[0]
        before, after = re.sub(f"{_SPACE}+$", "", before), re.sub(f"^{_SPACE}+", "", after)
        is_free = bool(_OPENED.search(before)) and bool(_CLOSED.match(after))
        return shown if is_free or not _is_loose(part, shown) else rf"\left({shown}\right)"

    return _FIELD.sub(replaced, text)


def _is_loose(part: Any, shown: str) -> bool:
    """Whether what stands beside the part could be read as belonging to one of its terms."""
    is_sum = bool(getattr(part, "is_Add", False) or getattr(part, "is_MatAdd", False))
    return not isinstance(part, str) and (is_sum or shown.startswith("-"))


def scaled(factor: Any, vector: Sequence[Any]) -> str:
    """The LaTeX of a vector with a common factor in front: the entries are printed after division by it."""
    return f"{latex(factor)} {latex(tuple(sp.cancel(entry / factor) for entry in vector))}"
