"""Gaussian heads with fewer components: five for all of them, three for the isotropic ones.

The isotropic head of ``convert/heads/encoding.py`` is the special case a = c = 2 alpha, b = 0, not a = c = alpha as the
draft says after eq. (16).
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.checks import all_equal, constant, equal
from ...prover.claim import Check, Checks, Status, claim
from ...prover.document import latex
from ..common.notation import alpha
from ..theorem.encoding import dot
from ..theorem.encoding import head_vector as head_vector_of
from .gaussian import DRAFT_ENCODING, DRAFT_HEAD_VECTOR, EXPONENT, HALF, ONE, a, b, c, mu_1, mu_2, x_1, x_2

ENCODING = (x_1, x_2, x_1**2, x_2**2, x_1 * x_2)
GAUSSIAN_HEAD_VECTOR = tuple(
    HALF * entry for entry in (-2 * (a * mu_1 + b * mu_2), -2 * (b * mu_1 + c * mu_2), a, c, 2 * b)
)
DROPPED = HALF * (a * mu_1**2 + 2 * b * mu_1 * mu_2 + c * mu_2**2)
ISOTROPIC = {a: 2 * alpha, b: sp.Integer(0), c: 2 * alpha}
# (a, b, c, mu_1, mu_2) of five heads with a c - b^2 > 0, and six relative positions.
HEADS = ((1, 0, 1, 0, 0), (2, 0, 1, 0, 0), (1, 0, 1, 1, 0), (1, 0, 1, 0, 1), (2, 1, 2, 0, 0))
POSITIONS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1))


@claim(
    status=Status.ALGEBRA,
    scope=r"As in `gaussian-encoding`. Fewer are not enough for a linear encoding $v_h \cdot r_x$ that gives every "
    r"Gaussian head its attention, on any set of relative positions that contains $(0, 0)$, $(1, 0)$, $(-1, 0)$, "
    r"$(0, 1)$, $(0, -1)$ and $(1, 1)$.",
    source="draft, after eq. (16); the lower bound is new",
    tests=("proofs/claims/test_gaussian.py: test_ten_and_five_components_give_the_same_attention",),
    is_lemma=True,
)
def gaussian_reduction(
    *,
    encoding: tuple[Any, ...] = ENCODING,
    head_vector: tuple[Any, ...] = GAUSSIAN_HEAD_VECTOR,
    dropped: Any = DROPPED,
) -> Checks:
    r"""Five components are enough for all Gaussians, and fewer are not.

    In $R_x$ of `gaussian-encoding`, $x_1$ and $x_2$ stand twice, so their coefficients add up, and the ones give the
    same to all keys, which the softmax ignores (`softmax-shift`). So $R_x^\top t_h = r_x \cdot v_h + c_h$ with

    ```math
    \begin{gathered} r_x = {=encoding}, \qquad v_h = {=scaled(HALF, head_vector)}, \\ c_h = {=dropped} . \end{gathered}
    ```

    A softmax determines its scores up to a constant. So the scores of any encoding with the same attention form a
    matrix $S = V R + c\ 1^\top = [V\ c]\ [R;\ 1^\top]$, here with a row for each of ${=len(HEADS)}$ heads, a column
    for each of the ${=len(POSITIONS)}$ positions, and any constants $c$. $[R;\ 1^\top]$ and $V$ are invertible, so $S$
    has rank ${=len(HEADS)}$; the scores of an encoding with $D_p$ components have rank at most $D_p$.
    """
    ten, five = dot(DRAFT_ENCODING, DRAFT_HEAD_VECTOR), dot(encoding, head_vector)
    yield equal("ten and five components differ by $c_h$", ten, five + dropped)
    yield constant("$c_h$ does not depend on the key", dropped, (x_1, x_2))
    yield Check(
        r"$V$ and $[R;\ 1^\top]$ are invertible for the listed heads and positions",
        lambda: _dependent(encoding, head_vector),
    )


def _dependent(encoding: tuple[Any, ...], head_vector: tuple[Any, ...]) -> list[str]:
    """The matrices of the lower bound that are not invertible."""
    vectors = [
        [sp.sympify(e).subs(dict(zip((a, b, c, mu_1, mu_2), h, strict=True))) for e in head_vector] for h in HEADS
    ]
    encoded = [[sp.sympify(e).subs(dict(zip((x_1, x_2), p, strict=True))) for e in (*encoding, ONE)] for p in POSITIONS]
    matrices = {"V": sp.Matrix(vectors), "[R; 1^T]": sp.Matrix(encoded)}
    return [f"{name} of shape {m.shape} has rank {m.rank()}" for name, m in matrices.items() if m.rank() < max(m.shape)]


@claim(
    status=Status.ALGEBRA,
    scope=r"$\alpha$ and $\mu$ are real and fixed; the scores are to agree for all $x$, up to a constant.",
    source="draft, the remark after eq. (16), corrected",
    justifies=("convert/heads/encoding.py: head_vectors",),
    tests=("proofs/claims/test_gaussian.py: test_the_isotropic_gaussian_has_the_layers_head_vector",),
    is_lemma=True,
)
def gaussian_isotropic(*, constants: dict[Any, Any] = ISOTROPIC) -> Checks:
    r"""The isotropic head as a Gaussian, with the right constants.

    ```math
    \begin{gathered}
    {=EXPONENT} = {=isotropic} \\
    \text{for all } x \iff {=setting} . \end{gathered}
    ```

    This is what the coefficients of $x_1^2$, $x_1 x_2$ and $x_2^2$ on both sides say; those of $x_1$ and $x_2$ then
    agree as well. Hence the variance is $1 / (2 \alpha)$ along both axes. The draft prints $a = c = \alpha$, which
    gives half the locality strength. In $v_h = {=special}$ the two squares have the same coefficient and the product
    has none: what is left is the head vector of `encoding-identity`, with the centre $\mu$.
    """
    isotropic = -alpha * ((x_1 - mu_1) ** 2 + (x_2 - mu_2) ** 2)
    special = tuple(sp.expand(entry.subs(constants)) for entry in GAUSSIAN_HEAD_VECTOR)
    square, row, column = head_vector_of((mu_1, mu_2))
    three = (row, column, square, square, sp.Integer(0))
    merged = {str(entry): pair for entry, pair in zip(ENCODING, zip(special, three, strict=True), strict=True)}
    setting = r", \quad ".join(f"{latex(symbol)} = {latex(number)}" for symbol, number in constants.items())

    def other_solutions() -> list[str]:
        difference = sp.Poly(sp.expand(EXPONENT - isotropic), x_1, x_2)
        equations = [coefficient for powers, coefficient in difference.terms() if any(powers)]
        solutions = sp.linsolve(equations, (a, b, c))
        claimed = sp.FiniteSet(tuple(constants[symbol] for symbol in (a, b, c)))
        return [] if solutions == claimed else [f"the solutions are {solutions}, not {claimed}"]

    yield equal("with these constants the exponent is the isotropic score", EXPONENT.subs(constants), isotropic)
    yield Check("no other constants do it", other_solutions)
    yield all_equal("the five components become the three of `encoding-identity`", merged)
