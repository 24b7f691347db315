"""Heads that look at an ellipse instead of a disc: the non-isotropic Gaussians of the draft's section 3.2.

Five components are enough for all of them, three for the isotropic ones. The isotropic head of
``convert/heads/encoding.py`` is the special case a = c = 2 alpha, b = 0, not a = c = alpha as the draft says after
eq. (16).
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.checks import all_equal, constant, equal, invertible
from ...prover.claim import Check, Checks, Failures, Status, claim
from ...prover.document import latex
from ..common.scores import alpha, dot, squared_distance
from ..common.scores import head_vector as head_vector_of

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


@claim(
    status=Status.ALGEBRA,
    scope=r"$\Sigma^{-1}$ is a real symmetric matrix, $(u, v) = x - \mu$ runs over the real plane, and the score is "
    r"$-\tfrac{1}{2} Q$. In eq. (13), $\Sigma^{-1} = L^\top L$ for a real matrix $L$, which is called "
    r"$\Sigma^{-1/2}$ there.",
    source="draft, eq. (13), made exact",
    justifies=("learn/heads/encodings.py: Gaussian",),
    tests=("proofs/claims/test_gaussian.py",),
)
def gaussian_maximum(*, form: Any = FORM, discriminant: Any = a * c - b**2, root: Any = ROOT) -> Checks:
    r"""A Gaussian head has exactly one target if and only if its matrix is positive definite.

    The score is largest, 0, at the target alone if and only if $a$ and the determinant are positive:

    ```math
    \begin{gathered} \Sigma^{-1} = {=PRECISION}, \qquad Q = {=form}, \\
    Q > 0 \text{ for all } (u, v) \ne 0 \iff {=discriminant} > 0 \text{ and } a > 0 . \end{gathered}
    ```

    **Proof.** Completing the square in $u$, $a Q = {=completed}$. If both conditions hold, the second term is positive
    where $v \ne 0$, and the first where $v = 0$ and $u \ne 0$. Conversely, $Q = a$ at $(1, 0)$ and
    $Q = a {=discriminant}$ at $(-b, a)$: if $a \le 0$, the first of these keys scores at least as high as the target,
    and if $a > 0$ and ${=discriminant} \le 0$, the second does. $\square$

    Eq. (13) alone gives $a \ge 0$, $c \ge 0$ and ${=discriminant} = (\det L)^2 \ge 0$. So it allows ties along a line,
    where $\det L = 0$; an invertible $L$ excludes them.
    """
    completed = (a * u + b * v) ** 2 + discriminant * v**2
    gram = root.T * root
    entries = {a: gram[0, 0], b: gram[0, 1], c: gram[1, 1]}
    at_second = form.subs({u: -b, v: a}, simultaneous=True)
    diagonal = {"a": gram[0, 0], "c": gram[1, 1]}
    yield equal("$a Q$ is the sum with the completed square", a * form, completed)
    yield equal("$Q$ at $(-b, a)$ is $a (a c - b^2)$", at_second, a * discriminant)
    yield equal("$Q$ at $(1, 0)$ is $a$", form.subs({u: 1, v: 0}), a)
    yield equal(r"$a c - b^2$ is the square of $\det L$", discriminant.subs(entries), root.det() ** 2)
    yield Check(
        r"the diagonal entries of $L^\top L$ are not negative",
        lambda: [f"{name} = {entry} may be negative" for name, entry in diagonal.items() if not entry.is_nonnegative],
    )


@claim(
    status=Status.ALGEBRA,
    scope=r"$x$, $\mu$ and the symmetric matrix $\Sigma^{-1}$ are real.",
    source="draft, eq. (12)-(16)",
    justifies=("learn/heads/encodings.py: Gaussian",),
    tests=("proofs/claims/test_gaussian.py",),
    is_lemma=True,
)
def gaussian_encoding(
    *,
    encoding: tuple[Any, ...] = DRAFT_ENCODING,
    head_vector: tuple[Any, ...] = DRAFT_HEAD_VECTOR,
    precision: Any = PRECISION,
) -> Checks:
    r"""Any Gaussian is an inner product of ten components.

    Eq. (14) and (15) are the first two lines, and their inner product is that of eq. (16):

    ```math
    \begin{gathered} R_x = {=encoding}, \\
    t_h = {=scaled(HALF, head_vector)}, \\
    R_x^\top t_h = {=EXPONENT} \\
    = -\tfrac{1}{2} (x - \mu)^\top \Sigma^{-1} (x - \mu), \qquad \Sigma^{-1} = {=precision} . \end{gathered}
    ```
    """
    offset = sp.Matrix([x_1 - mu_1, x_2 - mu_2])
    yield equal(
        "the inner product of eq. (14) and (15) is the sum of squares in eq. (16)", dot(encoding, head_vector), EXPONENT
    )
    yield equal("the sum of squares is the quadratic form", EXPONENT, (HALF * offset.T * precision * offset)[0])


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
    tests=("proofs/claims/test_gaussian.py",),
    is_lemma=True,
)
def gaussian_reduction(
    *, encoding: tuple[Any, ...] = ENCODING, head_vector: tuple[Any, ...] = GAUSSIAN_HEAD_VECTOR, dropped: Any = DROPPED
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
    heads = [dict(zip((a, b, c, mu_1, mu_2), head, strict=True)) for head in HEADS]
    keys = [dict(zip((x_1, x_2), position, strict=True)) for position in POSITIONS]
    vectors = sp.Matrix([[sp.sympify(entry).subs(head) for entry in head_vector] for head in heads])
    encoded = sp.Matrix([[sp.sympify(entry).subs(key) for entry in (*encoding, ONE)] for key in keys])
    yield invertible(
        r"$V$ and $[R;\ 1^\top]$ are invertible for the listed heads and positions", {"V": vectors, "[R; 1^T]": encoded}
    )


@claim(
    status=Status.ALGEBRA,
    scope=r"$\alpha$ and $\mu$ are real and fixed; the scores are to agree for all $x$, up to a constant.",
    source="draft, the remark after eq. (16), corrected",
    justifies=("convert/heads/encoding.py: head_vectors",),
    tests=("proofs/claims/test_gaussian.py",),
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
    gives half the sharpness. In $v_h = {=special}$ the two squares have the same coefficient and the product
    has none: what is left is the head vector of `encoding-identity`, with the centre $\mu$.
    """
    isotropic = -alpha * squared_distance((x_1, x_2), (mu_1, mu_2))
    special = tuple(sp.expand(entry.subs(constants)) for entry in GAUSSIAN_HEAD_VECTOR)
    square, row, column = head_vector_of((mu_1, mu_2))
    three = (row, column, square, square, sp.Integer(0))
    merged = {str(entry): pair for entry, pair in zip(ENCODING, zip(special, three, strict=True), strict=True)}
    setting = r", \quad ".join(f"{latex(symbol)} = {latex(number)}" for symbol, number in constants.items())

    def other_solutions() -> Failures:
        difference = sp.Poly(sp.expand(EXPONENT - isotropic), x_1, x_2)
        equations = [coefficient for powers, coefficient in difference.terms() if any(powers)]
        solutions = sp.linsolve(equations, (a, b, c))
        claimed = sp.FiniteSet(tuple(constants[symbol] for symbol in (a, b, c)))
        return [] if solutions == claimed else [f"the solutions are {solutions}, not {claimed}"]

    yield equal("with these constants the exponent is the isotropic score", EXPONENT.subs(constants), isotropic)
    yield Check("no other constants do it", other_solutions)
    yield all_equal("the five components become the three of `encoding-identity`", merged)
