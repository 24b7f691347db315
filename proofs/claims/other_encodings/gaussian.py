"""Non-isotropic Gaussians, draft section 3.2: heads that look at an ellipse instead of a disc."""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.checks import equal
from ...prover.claim import Check, Checks, Status, claim
from ..theorem.encoding import dot

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
    justifies=("learn/heads/gaussian.py: Gaussian",),
    tests=("proofs/claims/test_gaussian.py: test_a_semi_definite_matrix_has_ties",),
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
    justifies=("learn/heads/gaussian.py: Gaussian",),
    tests=("proofs/claims/test_gaussian.py: test_ten_and_five_components_give_the_same_attention",),
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
