"""Errata of the draft's section 3.2: non-isotropic Gaussians."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Claim, Formula, Kind
from .erratum import Erratum, Finding, Source, claim_of, words


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


def claims() -> list[Claim]:
    """The entries, as claims."""
    return [claim_of(erratum) for erratum in entries()]


def entries() -> list[Erratum]:
    """The entries, in the order of the text."""
    return [_row_vectors(), _constants()]


def _row_vectors() -> Erratum:
    return Erratum(
        name="row-vectors",
        title="Rows where columns are meant",
        source=Source.DRAFT,
        place="section 3.2, eq. (14); so does eq. (15)",
        quotation=Formula(
            r"R_x = \begin{pmatrix} x_1 & x_2 & x_1 & x_2 & x_1^2 & x_2^2 & x_1 x_2 & 1 & 1 & 1 \end{pmatrix}",
            "R_x = (x_1 x_2 x_1 x_2 x_1^2 x_2^2 x_1 x_2 1 1 1)",
        ),
        premise="Eq. (16) forms $R_x^T t_h$, a number; eq. (9) and (10) end in a transpose, eq. (14) and (15) do not.",
        finding=Finding.MISPRINT,
        corrected=Formula(r"R_x, t_h \in \mathbb{R}^{10 \times 1}", "R_x and t_h are columns, 10 x 1"),
        reason="The product of a $10 x 1$ and a $1 x 10$ matrix is a $10 x 10$ matrix.",
        consequence="$R_x^T t_h$ is a number.",
        holds=product_failures,
        as_printed=(1, 10),
        as_corrected=(10, 1),
        kind=Kind.EXACT,
    )


def _constants() -> Erratum:
    return Erratum(
        name="isotropic-constants",
        title="The isotropic case of the Gaussian",
        source=Source.DRAFT,
        place="section 3.2, after eq. (16)",
        quotation=words(
            "setting b=0 and a=c=alpha recovers the expression of the isotropic Gaussian derived above",
            r"\text{``setting } b=0 \text{ and } a=c=\alpha \text{ recovers the expression of the isotropic Gaussian"
            r" derived above''}",
        ),
        premise="The expression derived above is eq. (11).",
        finding=Finding.MISPRINT,
        corrected=Formula(r"b = 0,\ a = c = 2\alpha", "b = 0, a = c = 2 alpha"),
        reason=(
            "Eq. (16) has a factor 1/2 that eq. (11) has not: $a = c = alpha$ gives an isotropic Gaussian, that of "
            "$alpha / 2$."
        ),
        consequence="$Sigma^-1 = 2 alpha I$.",
        holds=constant_failures,
        as_printed=lambda alpha: (alpha, alpha),
        as_corrected=lambda alpha: (2 * alpha, 2 * alpha),
    )
