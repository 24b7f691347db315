"""Absolute positions suffice: vanilla multi-head attention over pixels that know where they are.

With (|p|^2, p_1, p_2, 1) appended to the content of every pixel, queries and keys of dimension three have the logits
of ``convert/heads/encoding.py`` up to a constant for each query, which the softmax ignores.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.formula import dot, lines, relate, scaled
from ..common.checks import constant, identity
from ..common.notation import Delta_1, Delta_2, alpha, delta_1, delta_2
from .encoding import ENCODING, HEAD_VECTOR

q_1, q_2, k_1, k_2 = sp.symbols("q_1 q_2 k_1 k_2", real=True)
QUERY_WEIGHT = sp.Matrix(
    [[0, 0, 0, -alpha], [0, 2 * alpha, 0, 2 * alpha * Delta_1], [0, 0, 2 * alpha, 2 * alpha * Delta_2]]
)
KEY_WEIGHT = sp.Matrix([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
QUERY_CONSTANT = alpha * ((q_1 + Delta_1) ** 2 + (q_2 + Delta_2) ** 2) - alpha * (Delta_1**2 + Delta_2**2)
QUERIES = ((0, 0), (1, 0), (0, 1))
KEYS = ((0, 0), (1, 0), (2, 0), (0, 1))

_QUERY, _KEY = Formula("Q_h(q)", "Q_h(q)"), Formula("K(k)", "K(k)")
_LOGITS = Formula(r"Q_h(q) \cdot K(k)", "Q_h(q) . K(k)")
_RELATIVE = Formula(r"v_h \cdot r_{k - q} + c_h(q)", "v_h . r_{k - q} + c_h(q)")


def appended(p_1: Any, p_2: Any) -> tuple[Any, ...]:
    """What is appended to the content of the pixel p: (|p|^2, p_1, p_2, 1)."""
    return (p_1**2 + p_2**2, p_1, p_2, sp.Integer(1))


def claims() -> list[Claim]:
    """The claims of this file."""
    return [absolute_positions()]


def absolute_positions(
    *, query_weight: Any = QUERY_WEIGHT, key_weight: Any = KEY_WEIGHT, query_constant: Any = QUERY_CONSTANT
) -> Claim:
    """Vanilla attention with appended absolute positions has the logits of the relative encoding."""
    query = tuple(query_weight * sp.Matrix(appended(q_1, q_2)))
    key = tuple(key_weight * sp.Matrix(appended(k_1, k_2)))
    relative = dot(HEAD_VECTOR, ENCODING).subs({delta_1: k_1 - q_1, delta_2: k_2 - q_2})
    target = -alpha * ((k_1 - q_1 - Delta_1) ** 2 + (k_2 - q_2 - Delta_2) ** 2)
    own = alpha * ((q_1 + Delta_1) ** 2 + (q_2 + Delta_2) ** 2)
    return Claim(
        name="absolute-positions",
        title="Absolute positions suffice, with queries and keys of dimension three",
        statement=lines(
            relate(_LOGITS, _RELATIVE),
            relate(_QUERY, query),
            relate(_KEY, key),
            relate(Formula("c_h(q)", "c_h(q)"), query_constant),
        ),
        assumptions=(
            "Every pixel $p$ of the padded input carries $(|p|^2, p_1, p_2, 1)$ beside its content. Queries and keys "
            "are linear in these four numbers and ignore the content; values ignore the four numbers.",
            "$alpha > 0$ includes the factor $D_k^(-1/2)$ of a vanilla layer. Exact arithmetic: $|p|^2$ grows with "
            "the image, so in floating point the relative form is better.",
        ),
        steps=_steps(query, key, sp.Add(target, own, evaluate=False)),
        checks=(
            identity(
                "the logits are those of the relative encoding plus the constant",
                dot(query, key),
                relative + query_constant,
            ),
            identity(
                "they are $-alpha$ times the squared distance to the target, up to the query's own term",
                dot(query, key),
                target + own,
            ),
            constant("the constant does not depend on the key", query_constant, (k_1, k_2)),
            Check(
                "$Q$ is invertible at three queries and $[K; 1^T]$ at four keys, for every $alpha > 0$",
                Kind.SYMBOLIC,
                lambda: _singular(query, key),
            ),
        ),
        justifies=("conv2attn.convert.heads.encoding.positional_scores",),
        tests=("proofs.claims.test_dimensions.test_absolute_logits_are_the_layers_up_to_the_querys_constant",),
    )


def _steps(query: tuple[Any, ...], key: tuple[Any, ...], completed: Any) -> tuple[Step, ...]:
    return (
        Step(
            relate(_QUERY, scaled(alpha, query)),
            "Linear in $(|q|^2, q_1, q_2, 1)$: the position of the query, moved by the centre of the head.",
        ),
        Step(relate(_KEY, key), "Linear in $(|k|^2, k_1, k_2, 1)$, and the same for all heads."),
        Step(
            relate(_LOGITS, completed),
            "The square completed, as in `encoding-identity`, around the target $q + Delta$.",
        ),
        Step(
            relate(_LOGITS, _RELATIVE),
            "`encoding-identity` at $delta = k - q$. The constant depends on the query, not on the key, so the "
            "softmax ignores it (`softmax-shift`), and attention is the same.",
        ),
        Step(
            Formula(
                r"S = Q K + c\, 1^{\top} = [Q\ c]\,[K;\ 1^{\top}],\quad "
                r"\operatorname{rank} S \ge \operatorname{rank} Q = 3",
                "S = Q K + c 1^T = [Q c] [K; 1^T], rank S >= rank Q = 3",
            ),
            "Fewer than three dimensions would not do: any logits with this attention have this form, a row for a "
            "query, a column for a key, and $[K; 1^T]$, which is $K$ with a row of ones, is invertible at four keys. "
            "Logits of queries and keys in $R^D_k$ have rank at most $D_k$.",
        ),
    )


def _singular(query: tuple[Any, ...], key: tuple[Any, ...]) -> list[str]:
    """The matrices of the lower bound that are not invertible."""
    positive = {alpha: sp.Symbol("alpha", positive=True)}
    rows = [[entry.subs(positive | {q_1: row, q_2: column}) for entry in query] for row, column in QUERIES]
    columns = [[entry.subs({k_1: row, k_2: column}) for entry in (*key, sp.Integer(1))] for row, column in KEYS]
    determinants = {"Q": sp.Matrix(rows).det(), "[K; 1^T]": sp.Matrix(columns).det()}
    return [f"{name} has determinant {d}" for name, d in determinants.items() if not sp.simplify(d).is_nonzero]
