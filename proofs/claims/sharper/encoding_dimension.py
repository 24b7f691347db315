"""How many dimensions a relative positional encoding needs: two, not three, for heads that sit on one tap each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import sympy

from ...prover.decide import Expr, not_positive, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill, scaled
from ..certificate.tail import MAJORANT
from ..common.small_convolutions import Pixel, pixels
from ..theorem.one_hot import Q
from .one_dimension import Vector, dot

ALPHA, FLAT, TARGET, MULTIPLIER = sympy.symbols("alpha t T M", real=True)
SCORE = -ALPHA * (FLAT - TARGET) ** 2 + ALPHA * TARGET**2
COLUMNS = sympy.Symbol("W", integer=True, positive=True)
ALL_OFFSETS, ONE_QUERY = 2 * COLUMNS - 1, COLUMNS  # the smallest M
LINE_TAIL = 2 * Q / (1 + Q)
GRIDS = ((1, 4), (2, 1), (2, 2), (3, 4), (4, 3))


def flattened(delta: Sequence[Expr], multiplier: Expr) -> Expr:
    """t = M delta_1 + delta_2."""
    return multiplier * delta[0] + delta[1]


def encoding(t: Expr) -> Vector:
    """r = (t^2, t), D_p = 2."""
    return t**2, t


def head_vector(T: Expr, alpha: Expr = 1) -> Vector:
    """v = -alpha (1, -2 T)."""
    return -alpha, 2 * alpha * T


def identity_failures(
    *, encoding: Callable[[Expr], Vector] = encoding, head_vector: Callable[..., Vector] = head_vector
) -> list[str]:
    """Whether v . r = -alpha (t - T)^2 + alpha T^2."""
    return unequal(dot(head_vector(TARGET, ALPHA), encoding(FLAT)), SCORE, "v . r")


def injectivity_failures(*, all_offsets: Expr = ALL_OFFSETS, one_query: Expr = ONE_QUERY) -> list[str]:
    """Whether offsets that differ in their rows differ in t by at least 1, from these M on and from no smaller one.

    M delta_1 + delta_2 - (M delta_1' + delta_2') = M a - b with a = delta_1 - delta_1' >= 1 and b = delta_2' - delta_2
    at most 2 W - 2 for all offsets of a grid, and at most W - 1 for two keys seen from one query.
    """
    w, more, a, slack = sympy.symbols("w e a s", integer=True, nonnegative=True)  # W = 1 + w, and a + 1 for a >= 1
    failures = []
    spreads = (("all offsets", all_offsets, 2 * COLUMNS - 2), ("one query", one_query, COLUMNS - 1))
    for what, smallest, spread in spreads:
        difference = (smallest + more) * (1 + a) - (spread - slack)
        failures += not_positive(difference.subs(COLUMNS, 1 + w), f"{what}: M a - b for M >= {smallest}")
        failures += unequal(smallest - 1, spread, f"{what}: the next smaller M occurs as b")
        failures += unequal(
            flattened((1, 0), spread), flattened((0, spread), spread), f"{what}: a tie for M = {spread}"
        )
    return failures


def multiplier_for_query(width: int) -> int:
    """M = W."""
    return width


def flattened_failures(
    grids: Iterable[tuple[int, int]] = GRIDS, *, multiplier: Callable[[int], int] = multiplier_for_query
) -> list[str]:
    """Whether v . r is largest at the target only, by at least 1 for alpha = 1: every query, every target."""
    failures = []
    for size in grids:
        M = multiplier(size[1])
        for q, target in product(pixels(size), repeat=2):
            vector = head_vector(flattened(_offset(target, q), M))
            scores = {k: dot(vector, encoding(flattened(_offset(k, q), M))) for k in pixels(size)}
            rivals = [k for k, score in scores.items() if k != target and score > scores[target] - 1]
            failures += [f"{size}, M = {M}, query {q}: key {k} rivals target {target}" for k in rivals[:1]]
    return failures[:3]


def _offset(key: Pixel, query: Pixel) -> Pixel:
    return key[0] - query[0], key[1] - query[1]


def line_tail_failures(*, bound: Expr = LINE_TAIL) -> list[str]:
    """Whether 1 - 1 / theta_3 is at most the bound, from theta_3 <= (1 + q) / (1 - q)."""
    return unequal(1 - 1 / MAJORANT, bound, "1 - (1 - q) / (1 + q)")


def _parts() -> dict[str, object]:
    vector = tuple(head_vector(TARGET, ALPHA))
    return {
        "encoding": tuple(encoding(FLAT)),
        "head": scaled(-ALPHA, vector),
        "flat": flattened(sympy.symbols("delta_1 delta_2", real=True), MULTIPLIER),
        "product": dot(vector, encoding(FLAT)),
        "score": SCORE,
        "one": ONE_QUERY,
        "all": ALL_OFFSETS,
        "line": LINE_TAIL,
    }


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_two()]


def _two() -> Claim:
    return Claim(
        name="two-dimensions-suffice",
        title="An encoding of dimension 2 expresses every convolution",
        statement=fill(
            r"\begin{gathered} r_\delta = $encoding,\ v_h = $head,\quad t = $flat,\ T = M \Delta_1 + \Delta_2 \\ v_h"
            r" \cdot r_\delta = $score \text{ is largest at the target only, by } \alpha, \text{ if } M \ge $one"
            r" \end{gathered}",
            "With r_delta = $encoding, v = $head, t = $flat, T = M Delta_1 + Delta_2: v . r_delta = $score. On a "
            "grid of W columns it is largest at the target only, by at least alpha, if M >= $one; all offsets of the "
            "grid have different encodings if M >= $all. Both numbers are the smallest.",
            **_parts(),
        ),
        assumptions=(
            "$M$ is an integer and the target is a key, as it is in the padded grid (claim `head-assembly`).",
            "For the smallest $M > 0$: at least two rows.",
        ),
        steps=_two_steps(),
        checks=(
            Check("$v . r = -alpha (t - T)^2 + alpha T^2$", Kind.SYMBOLIC, identity_failures),
            Check(
                "$M >= 2 W - 1$, and $M >= W$ for one query; no smaller $M$ does", Kind.SYMBOLIC, injectivity_failures
            ),
            Check("the tail is at most $2 q / (1 + q)$", Kind.SYMBOLIC, line_tail_failures),
            Check(
                "the largest score for $M = W$, every query and every target",
                Kind.INSTANCES,
                flattened_failures,
                cases=tuple(f"{rows}x{columns} keys" for rows, columns in GRIDS),
            ),
        ),
        source="new",
        tests=("proofs.claims.test_sharper.test_two_dimensions_give_the_heads_of_the_code",),
        formal=(
            "Dimension.encoding_identity_2",
            "Dimension.unique_maximum_2",
            "Dimension.tau_line_bound",
            "Dimension.theorem_1_with_two_dimensions",
        ),
    )


def _two_steps() -> tuple[Step, ...]:
    return (
        Step(
            fill(r"v_h \cdot r_\delta = $product = $score", "v . r_delta = $product = $score", **_parts()),
            "Complete the square. The last term is the same for all keys.",
        ),
        Step(
            Formula(
                r"t - T = M (k_1 - t_1^*) + (k_2 - t_2^*),\quad |k_2 - t_2^*| \le W - 1",
                "t - T = M (k_1 - target_1) + (k_2 - target_2), |k_2 - target_2| <= W - 1",
            ),
            "The query cancels: $t - T$ is the difference of the flat indices of key and target, both on the grid.",
        ),
        Step(
            Formula(
                r"M \ge W,\ k \ne t^* \implies |t - T| \ge 1",
                "M >= W and k != target imply |t - T| >= 1",
            ),
            "If the rows differ, the row term is at least $M >= W$ in size and the column term at most $W - 1$; if "
            "not, the columns differ. $t - T$ is an integer.",
        ),
        Step(
            Formula(
                r"M \ge 2W - 1 \implies \delta \mapsto t \text{ is injective on } \{|\delta_2| \le W - 1\}",
                "M >= 2 W - 1 makes delta -> t injective for |delta_2| <= W - 1",
            ),
            "The same, with $|delta_2 - delta_2'| <= 2 W - 2$. A smaller $M > 0$ is such a difference $b$, and then "
            "offsets that differ by $(1, -M)$ coincide; likewise two keys for $M <= W - 1$.",
        ),
        Step(
            fill(r"1 - p_t \le 1 - \vartheta_3(q)^{-1} \le $line", "1 - p_t <= 1 - theta_3(q)^-1 <= $line", **_parts()),
            "The numbers $t - T$ are different integers, so the partition sum is part of $theta_3(q)$: half the tail "
            "of three dimensions, but scores as large as $alpha (M H)^2$.",
        ),
    )
