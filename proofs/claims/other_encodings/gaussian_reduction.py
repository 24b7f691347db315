"""Gaussian heads with fewer components: five for all of them, three for the isotropic ones.

The isotropic head of ``convert/heads/encoding.py`` is the special case a = c = 2 alpha, b = 0, not a = c = alpha as the
draft says after eq. (16).
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import dot, lines, relate, scaled
from ..common.checks import constant, identities, identity
from ..common.notation import Delta_1, Delta_2, alpha
from ..theorem.encoding import CENTER
from ..theorem.encoding import head_vector as head_vector_of
from .gaussian import DRAFT_ENCODING, DRAFT_HEAD_VECTOR, EXPONENT, HALF, ONE, a, b, c, mu_1, mu_2, x_1, x_2

ENCODING = (x_1, x_2, x_1**2, x_2**2, x_1 * x_2)
GAUSSIAN_HEAD_VECTOR = tuple(
    HALF * entry for entry in (-2 * (a * mu_1 + b * mu_2), -2 * (b * mu_1 + c * mu_2), a, c, 2 * b)
)
DROPPED = HALF * (a * mu_1**2 + 2 * b * mu_1 * mu_2 + c * mu_2**2)
ISOTROPIC = {a: 2 * alpha, b: sp.Integer(0), c: 2 * alpha}


def claims() -> list[Claim]:
    """The claims of this file."""
    return [gaussian_reduction(), gaussian_isotropic()]


def gaussian_reduction(
    *,
    encoding: tuple[Any, ...] = ENCODING,
    head_vector: tuple[Any, ...] = GAUSSIAN_HEAD_VECTOR,
    dropped: Any = DROPPED,
) -> Claim:
    """Five components are enough, and no linear encoding gets by with fewer."""
    ten, five = dot(DRAFT_ENCODING, DRAFT_HEAD_VECTOR), dot(encoding, head_vector)
    return Claim(
        name="gaussian-reduction",
        title="Five components are enough for all Gaussians, and fewer are not",
        statement=lines(
            Formula(r"R_x^{\top} t_h = r_x \cdot v_h + c_h", "R_x . t_h = r_x . v_h + c_h"),
            relate(Formula("r_x", "r_x"), encoding),
            relate(Formula("v_h", "v_h"), scaled(HALF, head_vector)),
            relate(Formula("c_h", "c_h"), dropped),
        ),
        assumptions=(
            "As in `gaussian-encoding`.",
            "Fewer: for a linear encoding $v_h . r_x$ that gives every Gaussian head its attention, on any set of "
            "relative positions that contains $(0, 0)$, $(1, 0)$, $(-1, 0)$, $(0, 1)$, $(0, -1)$ and $(1, 1)$.",
        ),
        steps=_reduction_steps(encoding),
        checks=(
            identity("ten and five components differ by $c_h$", ten, five + dropped),
            constant("$c_h$ does not depend on the key", dropped, (x_1, x_2)),
            Check(
                "$V$ and $[R; 1^T]$ are invertible for the listed heads and positions",
                Kind.EXACT,
                lambda: _dependent(encoding, head_vector),
            ),
        ),
        source="draft, after eq. (16); the lower bound is new",
        tests=("proofs.claims.test_gaussian.test_ten_and_five_components_give_the_same_attention",),
    )


def _reduction_steps(encoding: tuple[Any, ...]) -> tuple[Step, ...]:
    return (
        Step(
            relate(Formula(r"r_x", "r_x"), encoding),
            "$x_1$ and $x_2$ stand twice in eq. (14), so their coefficients add up; the three ones are dropped.",
        ),
        Step(
            Formula(r"R_x^{\top} t_h - r_x \cdot v_h = c_h", "R_x . t_h - r_x . v_h = c_h"),
            "What is dropped is the same for all keys, so the softmax ignores it: `softmax-shift`.",
        ),
        Step(
            Formula(r"S = V R + c\, 1^{\top} = [V\ c]\,[R;\ 1^{\top}]", "S = V R + c 1^T = [V c] [R; 1^T]"),
            "A softmax determines its scores up to a constant. So any encoding with the same attention has scores "
            "$S$ of this form: a row for each of five heads, a column for each of six positions, and in the column "
            "$c$ a constant for each head; $[R; 1^T]$ is $R$ with a row of ones.",
        ),
        Step(
            Formula(
                r"\operatorname{rank} S = \operatorname{rank} [V\ c] \ge \operatorname{rank} V = 5",
                "rank S = rank [V c] >= rank V = 5",
            ),
            "$[R; 1^T]$ is invertible at the six positions, and $V$ is for the five heads of the check. The scores "
            "of an encoding with $D_p$ components have rank at most $D_p$.",
        ),
    )


# (a, b, c, mu_1, mu_2) of five heads with a c - b^2 > 0, and six relative positions.
HEADS = ((1, 0, 1, 0, 0), (2, 0, 1, 0, 0), (1, 0, 1, 1, 0), (1, 0, 1, 0, 1), (2, 1, 2, 0, 0))
POSITIONS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1))


def _dependent(encoding: tuple[Any, ...], head_vector: tuple[Any, ...]) -> list[str]:
    """The matrices of the lower bound that are not invertible."""
    vectors = [
        [sp.sympify(e).subs(dict(zip((a, b, c, mu_1, mu_2), h, strict=True))) for e in head_vector] for h in HEADS
    ]
    encoded = [[sp.sympify(e).subs(dict(zip((x_1, x_2), p, strict=True))) for e in (*encoding, ONE)] for p in POSITIONS]
    matrices = {"V": sp.Matrix(vectors), "[R; 1^T]": sp.Matrix(encoded)}
    return [f"{name} of shape {m.shape} has rank {m.rank()}" for name, m in matrices.items() if m.rank() < max(m.shape)]


def gaussian_isotropic(*, constants: dict[Any, Any] = ISOTROPIC) -> Claim:
    """The isotropic head is the Gaussian with a = c = 2 alpha and b = 0, and no other."""
    isotropic = -alpha * ((x_1 - mu_1) ** 2 + (x_2 - mu_2) ** 2)
    special = tuple(sp.expand(entry.subs(constants)) for entry in GAUSSIAN_HEAD_VECTOR)
    known = tuple(entry.subs({Delta_1: mu_1, Delta_2: mu_2}) for entry in head_vector_of(CENTER))
    merged = {"x_1": (special[0], known[1]), "x_2": (special[1], known[2])}
    merged |= {"x_1^2": (special[2], known[0]), "x_2^2": (special[3], known[0]), "x_1 x_2": (special[4], sp.Integer(0))}

    def other_solutions() -> list[str]:
        difference = sp.Poly(sp.expand(EXPONENT - isotropic), x_1, x_2)
        equations = [coefficient for powers, coefficient in difference.terms() if any(powers)]
        solutions = sp.linsolve(equations, (a, b, c))
        claimed = sp.FiniteSet(tuple(constants[symbol] for symbol in (a, b, c)))
        return [] if solutions == claimed else [f"the solutions are {solutions}, not {claimed}"]

    shown = [relate(symbol, constants[symbol]) for symbol in (a, b, c)]
    setting = Formula(r",\quad ".join(f.latex for f in shown), ", ".join(f.text for f in shown))
    return Claim(
        name="gaussian-isotropic",
        title="The isotropic head as a Gaussian, with the right constants",
        statement=lines(
            relate(EXPONENT, isotropic),
            Formula(rf"\text{{for all }} x \iff {setting.latex}", f"for all x iff {setting.text}"),
        ),
        assumptions=(
            "$alpha$ and $mu$ are real and fixed; the scores are to agree for all $x$, up to a constant.",
            "So the variance of the Gaussian is $1 / (2 alpha)$ along both axes.",
        ),
        steps=_isotropic_steps(setting, special),
        checks=(
            identity("with these constants the exponent is the isotropic score", EXPONENT.subs(constants), isotropic),
            Check("no other constants do it", Kind.SYMBOLIC, other_solutions),
            identities("the five components become the three of `encoding-identity`", lambda: merged),
        ),
        justifies=("conv2attn.convert.heads.encoding.head_vectors",),
        source="draft, the remark after eq. (16), corrected",
        tests=("proofs.claims.test_gaussian.test_the_isotropic_gaussian_has_the_layers_head_vector",),
    )


def _isotropic_steps(setting: Formula, special: tuple[Any, ...]) -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"-\tfrac{a}{2} = -\alpha,\quad -b = 0,\quad -\tfrac{c}{2} = -\alpha",
                "-a/2 = -alpha, -b = 0, -c/2 = -alpha",
            ),
            "The coefficients of $x_1^2$, $x_1 x_2$ and $x_2^2$ on both sides; those of $x_1$ and $x_2$ then agree "
            "as well.",
        ),
        Step(setting, "The only solution. The draft prints $a = c = alpha$, which gives half the locality strength."),
        Step(
            relate(Formula("v_h", "v_h"), special),
            "The two squares have the same coefficient and the product has none, so three components are enough: "
            "this is the head vector of `encoding-identity`, with the centre $mu$.",
        ),
    )
