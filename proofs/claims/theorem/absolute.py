"""Absolute positions suffice: vanilla multi-head attention over pixels that know where they are."""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.checks import constant, equal, invertible
from ...prover.claim import Checks, Status, claim
from ..common.scores import Delta_1, Delta_2, alpha, dot, encoding, head_vector, minus, squared_distance
from .encoding import CENTER, shared

q_1, q_2, k_1, k_2 = sp.symbols("q_1 q_2 k_1 k_2", real=True)
QUERY_WEIGHT = sp.Matrix(
    [[0, 0, 0, -alpha], [0, 2 * alpha, 0, 2 * alpha * Delta_1], [0, 0, 2 * alpha, 2 * alpha * Delta_2]]
)
KEY_WEIGHT = sp.Matrix([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
QUERY_CONSTANT = alpha * ((q_1 + Delta_1) ** 2 + (q_2 + Delta_2) ** 2) - alpha * (Delta_1**2 + Delta_2**2)
QUERIES = ((0, 0), (1, 0), (0, 1))
KEYS = ((0, 0), (1, 0), (2, 0), (0, 1))


def appended(p_1: Any, p_2: Any) -> tuple[Any, ...]:
    """Position appended to the content of the pixel p: (|p|^2, p_1, p_2, 1)."""
    return (p_1**2 + p_2**2, p_1, p_2, sp.Integer(1))


@claim(
    status=Status.ALGEBRA,
    scope=r"Every pixel $p$ of the padded input carries $(|p|^2, p_1, p_2, 1)$ beside its content. Queries and keys "
    r"are linear in these and ignore the content; values ignore these. $\alpha > 0$ includes the factor "
    r"$D_k^{-1/2}$ of a vanilla layer. Exact arithmetic: $|p|^2$ grows with the image, so in floating point the "
    r"relative form is better.",
    justifies=("convert/heads/encoding.py: positional_scores",),
    tests=("proofs/claims/test_dimensions.py",),
)
def absolute_positions(
    *, query_weight: Any = QUERY_WEIGHT, key_weight: Any = KEY_WEIGHT, query_constant: Any = QUERY_CONSTANT
) -> Checks:
    r"""Absolute positions suffice: queries and keys of dimension three attend as the quadratic encoding does.

    With $Q_h(q) = {=scaled(alpha, query)}$ and $K(k) = {=key}$, the same keys for all heads,

    ```math
    Q_h(q) \cdot K(k) = v_h \cdot r_{k - q} + c_h(q), \qquad c_h(q) = {=query_constant} ,
    ```

    so attention is that of `encoding-identity`. Queries and keys of dimension two cannot give *this* attention. Other
    encodings may do with less: `two-dimensions-suffice`.

    **Proof.** $Q_h(q) \cdot K(k) = {=target} + {=own}$: the square completed around the target $q + \Delta$. What is
    left depends on the query alone, and the softmax ignores it (`softmax-shift`). Any logits with this attention have,
    as a matrix of queries and keys, the form $S = Q K + c\ 1^\top$. $Q$, at three queries, and $K$ with a row of ones,
    at four keys, are invertible, so the rank of $S$ is at least 3. Logits of queries and keys in $\mathbb{R}^{D_k}$
    have rank at most $D_k$.
    """
    query = tuple(query_weight * sp.Matrix(appended(q_1, q_2)))
    key = tuple(key_weight * sp.Matrix(appended(k_1, k_2)))
    delta = minus((k_1, k_2), (q_1, q_2))
    relative, target = dot(encoding(delta), head_vector(CENTER)), -alpha * squared_distance(delta, CENTER)
    own = query_constant + shared(CENTER)
    yield equal(
        "the logits are those of the relative encoding plus the constant", dot(query, key), relative + query_constant
    )
    yield equal(
        "they are $-\\alpha$ times the squared distance to the target, up to the query's own term",
        dot(query, key),
        target + own,
    )
    yield constant("the constant does not depend on the key", query_constant, (k_1, k_2))
    positive = {alpha: sp.Symbol("alpha", positive=True)}
    rows = [[entry.subs(positive | {q_1: row, q_2: column}) for entry in query] for row, column in QUERIES]
    columns = [[entry.subs({k_1: row, k_2: column}) for entry in (*key, sp.Integer(1))] for row, column in KEYS]
    matrices = {"Q": sp.Matrix(rows), "[K; 1^T]": sp.Matrix(columns)}
    yield invertible("the two matrices are invertible, for every $\\alpha > 0$", matrices)
