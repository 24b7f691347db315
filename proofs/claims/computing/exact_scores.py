"""Justifies ``scores_are_exact`` in ``heads/encoding.py``: which scores floating point computes without rounding."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import sympy as sp

from ...prover.checks import plain
from ...prover.claim import Check, Checks, Failures, Status, claim
from .floating_point import FORMATS

LARGEST_SIDE = {"binary32": 2895, "binary64": 67_108_863}  # of a square key grid, for a 5 x 5 kernel

rows, columns, d_1, d_2, D_1, D_2 = sp.symbols("R C d_1 d_2 D_1 D_2", nonnegative=True)
LARGEST_INTEGER = rows**2 + columns**2 + 2 * (rows * D_1 + columns * D_2)


@claim(
    status=Status.COQ,
    scope=r"$\alpha = 2^a$ is a normal number, and no number overflows. Queries, keys and centres have integer "
    r"coordinates, on a key grid of $(R + 1) \times (C + 1)$ pixels; $D_1$ and $D_2$ are the largest "
    r"$|\Delta_1|$ and $|\Delta_2|$. Along other numbers of axes, $B$ has the like terms for each. Numbers have "
    r"$p$ bits: 24 in single, 53 in double precision. Products are added in any order; a product and a sum may "
    r"be rounded together. Coq has it for every score whose products have absolute values that sum to at most "
    r"$2^p \alpha$, and for $B$ itself where a score is a dot product; there, and in the softmax, no number overflows "
    r"if $\alpha \le 2^{102}$, in double precision $2^{969}$.",
    justifies=("convert/heads/encoding.py: scores_are_exact", "convert/heads/regime.py: Regime.score_dtype"),
    coq=(
        "ExactScores.v: scores_without_rounding",
        "Binary.v: integers_representable",
        "ExactRegime.v: joint_softmax_is_one_hot, separable_softmax_is_one_hot",
        "FloatSoftmax.v: scores_are_finite, softmax_is_finite, joint_softmax_is_finite, tables_are_finite",
        "Literal.v: dot_product_is_a_score, literal_scores",
        "Checker.v: accepted_is_one_hot, accepted_is_one_hot_with_a_largest_number",
    ),
    tests=("proofs/claims/test_floating_point.py",),
)
def exact_scores(
    *, largest: Any = LARGEST_INTEGER, sides: Mapping[str, int] = LARGEST_SIDE, exponent: int = 0
) -> Checks:
    r"""If alpha is a power of two, scores are computed without rounding.

    ```math
    B = {=largest} \le 2^p \implies \mathrm{rd}(v_h \cdot r_\delta) = v_h \cdot r_\delta .
    ```

    For a $5 \times 5$ kernel, whose centres are at most two pixels from the query along each axis, that is so on
    square key grids of up to ${=sides["binary32"]}$ pixels a side in single, and ${=sides["binary64"]}$ in double
    precision.

    **Proof.** The squares and their sum are integers $m$; all other products and partial sums of
    $-\alpha |\delta|^2 + 2 \alpha \Delta_1 \delta_1 + 2 \alpha \Delta_2 \delta_2$ are $\alpha m$ with an integer $m$.
    By the triangle inequality, and since $|\delta_1| \le R$ and $|\delta_2| \le C$, each has $|m| \le B$. An integer
    below $2^p$ has at most $p$ bits, $2^p$ itself has one, and $2^p + 1$ is the first that does not fit; a factor
    $2^a$ changes the exponent only. So every result is a number of the format, and is not rounded. The softmax's
    subtraction of the largest score is exact, too: for a target $t$ on the key grid, $s_k - s_t = -\alpha |k - t|^2$
    with $|k - t|^2 \le R^2 + C^2 \le B$. $\square$
    """
    yield Check("no partial sum exceeds $B$, for all signs of the coordinates", lambda: _beyond(largest))
    yield Check(
        "integers up to $2^p$ fit into $p$ bits, and $2^p + 1$ does not",
        lambda: _misfits(exponent),
        "all for $p = 2, ..., 10$; the largest for $p = 24$ and $53$",
    )
    yield Check(
        "for a $5 \\times 5$ kernel, $B \\le 2^p$ up to these sides and not beyond",
        lambda: _wrong_sides(largest, sides, exponent),
    )


def _beyond(largest: Any) -> Failures:
    """Partial sums that could exceed the bound.

    |delta_1| = d_1 and R = d_1 + r, |delta_2| = d_2 and C = d_2 + c, with r and c at least 0: then the bound minus the
    sum must be a polynomial without negative coefficients.
    """
    r, c = sp.symbols("r c", nonnegative=True)
    bound = largest.subs({rows: d_1 + r, columns: d_2 + c})
    for first, second, sign in product((1, -1), repeat=3):
        squares, row, column = d_1**2 + d_2**2, 2 * first * D_1 * d_1, 2 * second * D_2 * d_2
        for integer in (d_1**2, squares, row, column, squares - row, squares - row - column):
            spare = sp.Poly(bound - sign * integer)
            if any(coefficient < 0 for coefficient in spare.coeffs()):
                yield f"B - ({plain(sign * integer)}) = {plain(spare.as_expr())} can be negative"


def _fits(integer: int, precision: int) -> bool:
    """Whether an integer is a number of this precision: its odd part has at most ``precision`` bits."""
    return integer == 0 or (integer // (integer & -integer)).bit_length() <= precision


def _misfits(exponent: int) -> Failures:
    for p in (*range(2, 11), *(each.precision for each in FORMATS.values())):
        limit = 2 ** (p + exponent)
        integers = range(limit + 1) if p <= 10 else (limit - 1, limit)
        yield from [f"{m} <= 2^{p + exponent} does not fit into {p} bits" for m in integers if not _fits(m, p)]
        if _fits(limit + 1, p):
            yield f"{limit + 1} fits into {p} bits, so the limit is too low"


def _wrong_sides(largest: Any, sides: Mapping[str, int], exponent: int) -> Failures:
    for name, side in sides.items():
        limit = 2 ** (FORMATS[name].precision + exponent)
        here, further = (largest.subs({rows: n, columns: n, D_1: 2, D_2: 2}) for n in (side - 1, side))
        if not here <= limit < further:
            yield f"{name}, side {side}: B = {here}, one pixel more: {further}, limit {limit}"
