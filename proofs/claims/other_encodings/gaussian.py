"""Non-isotropic Gaussians, draft section 3.2: heads that look at an ellipse instead of a disc."""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import dot, lines, relate, scaled
from ..common.checks import identity

a, b, c, x_1, x_2, mu_1, mu_2 = sp.symbols("a b c x_1 x_2 mu_1 mu_2", real=True)
HALF = -sp.Rational(1, 2)
ONE = sp.Integer(1)
PRECISION = sp.Matrix([[a, b], [b, c]])
SQUARES = a * (x_1 - mu_1) ** 2 + 2 * b * (x_1 - mu_1) * (x_2 - mu_2) + c * (x_2 - mu_2) ** 2
u, v = sp.symbols("u v", real=True)
ROOT = sp.Matrix(2, 2, sp.symbols("l_11 l_12 l_21 l_22", real=True))
FORM = a * u**2 + 2 * b * u * v + c * v**2
EXPONENT = sp.Mul(HALF, SQUARES, evaluate=False)

DRAFT_ENCODING = (x_1, x_2, x_1, x_2, x_1**2, x_2**2, x_1 * x_2, ONE, ONE, ONE)
DRAFT_HEAD_VECTOR = tuple(
    HALF * entry
    for entry in (
        *(-2 * a * mu_1, -2 * c * mu_2, -2 * b * mu_2, -2 * b * mu_1),
        *(a, c, 2 * b, a * mu_1**2, c * mu_2**2, 2 * b * mu_1 * mu_2),
    )
)
_R, _T, _Q = Formula("R_x", "R_x"), Formula("t_h", "t_h"), Formula("Q", "Q")
_PRODUCT = Formula(r"R_x^{\top} t_h", "R_x . t_h")
_FORM = Formula(r"-\tfrac{1}{2} (x - \mu)^{\top} \Sigma^{-1} (x - \mu)", "-1/2 (x - mu)^T Sigma^-1 (x - mu)")


def claims() -> list[Claim]:
    """The claims of this file."""
    return [gaussian_encoding(), gaussian_maximum()]


def gaussian_encoding(
    *,
    encoding: tuple[Any, ...] = DRAFT_ENCODING,
    head_vector: tuple[Any, ...] = DRAFT_HEAD_VECTOR,
    precision: Any = PRECISION,
) -> Claim:
    """The exponent of a Gaussian is an inner product of ten components, eq. (14)-(16)."""
    product, offset = dot(encoding, head_vector), sp.Matrix([x_1 - mu_1, x_2 - mu_2])
    form = (HALF * offset.T * precision * offset)[0]
    return Claim(
        name="gaussian-encoding",
        title="Any Gaussian is an inner product of ten components",
        statement=relate(_PRODUCT, _FORM),
        assumptions=(
            "$x$, $mu$ and the symmetric matrix $Sigma^-1$ are real.",
            "$Sigma^-1 = [[a, b], [b, c]]$, eq. (13).",
        ),
        steps=(
            Step(relate(_R, encoding), "Eq. (14)."),
            Step(relate(_T, scaled(HALF, head_vector)), "Eq. (15)."),
            Step(relate(_PRODUCT, EXPONENT), "The inner product, with the squares put together: eq. (16)."),
            Step(relate(Formula("", ""), _FORM), "The quadratic form of $Sigma^-1$, written out."),
        ),
        checks=(
            identity("the inner product of eq. (14) and (15) is the sum of squares in eq. (16)", product, EXPONENT),
            identity("the sum of squares is the quadratic form", EXPONENT, form),
        ),
        source="draft, eq. (12)-(16)",
        tests=("proofs.claims.test_gaussian.test_ten_and_five_components_give_the_same_attention",),
    )


def gaussian_maximum(*, form: Any = FORM, discriminant: Any = a * c - b**2, root: Any = ROOT) -> Claim:
    """A Gaussian head has one target iff its matrix is positive definite; eq. (13) guarantees only semi-definite."""
    completed = (a * u + b * v) ** 2 + discriminant * v**2
    gram = root.T * root
    entries = {a: gram[0, 0], b: gram[0, 1], c: gram[1, 1]}

    def root_gives_no_negative() -> list[str]:
        values = {"a": gram[0, 0], "c": gram[1, 1]}
        return [f"{name} = {value} may be negative" for name, value in values.items() if not value.is_nonnegative]

    return Claim(
        name="gaussian-maximum",
        title="A Gaussian head has exactly one target if and only if its matrix is positive definite",
        statement=lines(
            relate(_Q, form),
            Formula(
                r"Q > 0 \text{ for all } (u, v) \ne 0 \iff a > 0 \text{ and } a c - b^2 > 0",
                "Q > 0 for all (u, v) != 0 iff a > 0 and a*c - b^2 > 0",
            ),
        ),
        assumptions=(
            "$(u, v) = x - mu$ runs over the real plane; the score is $-Q/2$ and is 0 at the target.",
            "$Sigma^-1 = L^T L$ for a real matrix $L$, as in eq. (13), where $L$ is called $Sigma^(-1/2)$.",
        ),
        steps=_steps(completed),
        checks=(
            identity("$a*Q$ is the sum with the completed square", a * form, completed),
            identity(
                "$Q$ at $(-b, a)$ is $a*(a*c - b^2)$", form.subs({u: -b, v: a}, simultaneous=True), a * discriminant
            ),
            identity("$Q$ at $(1, 0)$ is $a$", form.subs({u: 1, v: 0}), a),
            identity("$a*c - b^2$ is the square of $det L$", discriminant.subs(entries), root.det() ** 2),
            Check("the diagonal entries of $L^T L$ are not negative", Kind.SYMBOLIC, root_gives_no_negative),
        ),
        source="draft, eq. (13), made exact",
        tests=("proofs.claims.test_gaussian.test_a_semi_definite_matrix_has_ties",),
    )


def _steps(completed: Any) -> tuple[Step, ...]:
    return (
        Step(relate(Formula("a Q", "a Q"), completed), "The square in $u$ completed."),
        Step(
            Formula(r"a > 0,\ a c - b^2 > 0 \implies Q > 0", "a > 0, a*c - b^2 > 0 implies Q > 0"),
            "If $v != 0$, the second term is positive; if $v = 0$ and $u != 0$, the first is.",
        ),
        Step(
            Formula(r"Q(-b, a) = a (a c - b^2),\quad Q(1, 0) = a", "Q(-b, a) = a (a*c - b^2), Q(1, 0) = a"),
            "If $a <= 0$, then $(1, 0)$ scores at least as high as the target. If $a > 0$ and $a*c - b^2 <= 0$, then "
            "$(-b, a)$ does. So both conditions are needed.",
        ),
        Step(
            Formula(
                r"a \ge 0,\ c \ge 0,\quad a c - b^2 = (\det L)^2 \ge 0",
                "a >= 0, c >= 0, a*c - b^2 = (det L)^2 >= 0",
            ),
            "So eq. (13) alone allows ties along a line, when $det L = 0$; an invertible $L$ excludes them.",
        ),
    )
