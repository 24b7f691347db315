"""Errata of the draft's section 3.2: non-isotropic Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from conv2attn.proofs.claim import Formula, Kind
from conv2attn.proofs.decide import Expr, unequal
from conv2attn.proofs.erratum import Erratum
from conv2attn.proofs.geometry import pixels

LEVELS = range(-2, 3)


def definite_failures(condition: Callable[[int, int, int], bool]) -> list[str]:
    """Whether -(x - mu)^T S (x - mu) is largest at mu only, on 5 x 5 pixels, for all S the condition admits."""
    failures = []
    offsets = [(x - 2, y - 2) for x, y in pixels((5, 5))]
    for a, b, c in product(LEVELS, repeat=3):
        scores = {(x, y): -(a * x * x + 2 * b * x * y + c * y * y) for x, y in offsets}
        best = [offset for offset, score in scores.items() if score == max(scores.values())]
        if condition(a, b, c) and best != [(0, 0)]:
            failures.append(f"a, b, c = {a}, {b}, {c}: largest at mu + {best}")
    return failures


def constant_failures(constants: Callable[[Expr], tuple[Expr, Expr]]) -> list[str]:
    """Whether eq. (16) with b = 0 and these a and c is eq. (11)."""
    alpha, x1, x2, m1, m2 = sympy.symbols("alpha x1 x2 mu1 mu2", real=True)
    a, c = constants(alpha)
    general = -(a * (x1 - m1) ** 2 + c * (x2 - m2) ** 2) / 2
    return unequal(general, -alpha * ((x1 - m1) ** 2 + (x2 - m2) ** 2), "eq. (16) minus eq. (11)")


def product_failures(shape: tuple[int, int]) -> list[str]:
    """Whether R^T t is a number for R and t of this shape."""
    found = (sympy.MatrixSymbol("R", *shape).T * sympy.MatrixSymbol("t", *shape)).shape
    return [] if found == (1, 1) else [f"R^T t has shape {found}"]


def entries() -> list[Erratum]:
    """The entries, in the order of the text."""
    return [_semi_definite(), _row_vectors(), _constants()]


def _semi_definite() -> Erratum:
    return Erratum(
        name="semi-definite",
        title="Semi-definite is not enough",
        where="draft, before eq. (13)",
        printed=Formula(r"\Sigma^{-1} \succeq 0", "Sigma^-1 is positive semi-definite"),
        corrected=Formula(r"\Sigma^{-1} \succ 0", "Sigma^-1 is positive definite: a > 0 and a c - b^2 > 0"),
        reason="For a = 1, b = c = 0 the score is the same along a column; and an inverse is never singular.",
        consequence="x^T S x > 0 for all x != 0, so mu is the only maximum.",
        holds=definite_failures,
        as_printed=lambda a, b, c: a >= 0 and c >= 0 and a * c - b * b >= 0,
        as_corrected=lambda a, b, c: a > 0 and a * c - b * b > 0,
        kind=Kind.INSTANCES,
        cases=("5x5 pixels, mu in the middle, a, b, c from -2 to 2",),
    )


def _row_vectors() -> Erratum:
    return Erratum(
        name="row-vectors",
        title="Rows where columns are meant",
        where="draft, eq. (14)-(16)",
        printed=Formula(r"R_x, t_h \in \mathbb{R}^{1 \times 10}", "R_x and t_h are rows, 1 x 10"),
        corrected=Formula(r"R_x, t_h \in \mathbb{R}^{10 \times 1}", "R_x and t_h are columns, 10 x 1"),
        reason="The transposes of eq. (9) and (10) are missing, and R_x^T t_h of eq. (16) is a 10 x 10 matrix.",
        consequence="R_x^T t_h is a number.",
        holds=product_failures,
        as_printed=(1, 10),
        as_corrected=(10, 1),
        kind=Kind.EXACT,
    )


def _constants() -> Erratum:
    return Erratum(
        name="isotropic-constants",
        title="The isotropic case of the Gaussian",
        where="draft, after eq. (16)",
        printed=Formula(r"b = 0,\ a = c = \alpha", "b = 0, a = c = alpha"),
        corrected=Formula(r"b = 0,\ a = c = 2\alpha", "b = 0, a = c = 2 alpha"),
        reason="Eq. (16) has a factor 1/2 that eq. (11) has not: a = c = alpha gives the isotropic score at alpha / 2.",
        consequence="Sigma^-1 = 2 alpha I.",
        holds=constant_failures,
        as_printed=lambda alpha: (alpha, alpha),
        as_corrected=lambda alpha: (2 * alpha, 2 * alpha),
    )
