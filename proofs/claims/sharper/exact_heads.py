"""How many heads equal a convolution exactly, with finite scores: one more than the rank, with content or without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import sympy
from sympy import QQ

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ..common.small_convolutions import pixels
from .head_dimension import exact, rank
from .head_mixtures import KERNELS, Heads, Kernel, with_values
from .nonnegative import Vector, column_basis

SHAPE = (2, 2)
SIZES = ((2, 3), (3, 3))
KEY_COUNTS = (2, 3)
HALF = QQ(1, 2)


def shift_columns(size: tuple[int, int]) -> list[Vector]:
    """P_Delta of each tap, over (query, key) pairs."""
    queries = pixels((size[0] - SHAPE[0] + 1, size[1] - SHAPE[1] + 1))
    pairs = list(product(queries, pixels(size)))
    return [[QQ(int(k == (q[0] + m, q[1] + n))) for q, k in pairs] for m, n in pixels(SHAPE)]


def finite_heads(kernel: Kernel, size: tuple[int, int], epsilon: Any) -> Heads:
    """Heads 1 and 1 + epsilon sum_Delta b_Delta P_Delta, scaled, for a basis b, and the values that give P U."""
    P, basis = shift_columns(size), column_basis(kernel)
    ones = [QQ(1)] * len(P[0])
    tilted = []
    for b in basis:
        scale = epsilon / max(map(abs, b))
        entries = zip(*P, strict=True)
        tilted.append([1 + scale * sum(x * y for x, y in zip(b, entry, strict=True)) for entry in entries])
    return with_values([ones, *tilted], exact(P).transpose() * exact(kernel))


def attained_failures(
    sizes: Iterable[tuple[int, int]] = SIZES, *, epsilon: Any = HALF, most: Callable[[int], int] = lambda rank: rank + 1
) -> list[str]:
    """Whether rank U + 1 heads with positive entries, each row of a head with the same sum, give the convolution."""
    failures = []
    for (name, kernel), size in product(KERNELS.items(), sizes):
        if not any(map(any, kernel)):
            continue
        attention, values = finite_heads(kernel, size, epsilon)
        if attention * values != exact(shift_columns(size)).transpose() * exact(kernel):
            failures.append(f"{name}, {size}: the heads give something else")
        for column in attention.transpose().to_list():
            keys = size[0] * size[1]
            rows = {sum(column[start : start + keys]) for start in range(0, len(column), keys)}
            if min(column) <= 0 or len(rows) != 1:
                failures.append(f"{name}, {size}: not a softmax of finite scores: {column}")
        if attention.shape[1] > most(rank(kernel)):
            failures.append(f"{name}, {size}: {attention.shape[1]} heads")
    return failures[:5]


def positive_failures(sizes: Iterable[tuple[int, int]] = SIZES) -> list[str]:
    """Whether some (query, key) pair is 0 in all shifts, so that no positive matrix is a combination of them."""
    failures = []
    for size in sizes:
        if all(any(entries) for entries in zip(*shift_columns(size), strict=True)):
            failures.append(f"{size}: every key of every query is a tap")
    return failures


def linear_failures(counts: Iterable[int] = KEY_COUNTS, *, extra: Expr = 0) -> list[str]:
    """Whether d/de of sum_k softmax_k(s + e c + e^2 d) (e x_k) w at e = 0 is sum_k softmax_k(s) x_k w, plus extra.

    s are the scores of the blank image; c and d are any changes by content.
    """
    failures = []
    e, w = sympy.symbols("e w")
    for count in counts:
        s, c, d, x = (sympy.symbols(f"{name}1:{count + 1}", real=True) for name in "scdx")
        powers = [sympy.exp(a + e * b + e**2 * g) for a, b, g in zip(s, c, d, strict=True)]
        output = sum(p * e * value * w for p, value in zip(powers, x, strict=True)) / sum(powers)
        blank = [sympy.exp(a) for a in s]
        expected = sum(p * value * w for p, value in zip(blank, x, strict=True)) / sum(blank)
        failures += unequal(sympy.diff(output, e).subs(e, 0), expected + extra, f"{count} keys")
    return failures


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_exact()]


def _exact() -> Claim:
    return Claim(
        name="head-count-exact",
        title="Equality with finite scores takes one head more than the rank",
        statement=Formula(
            r"N_h^{\text{exact}} = \operatorname{rank} U + 1,\quad U \ne 0",
            "A layer with finite scores, that look at the content or not, and equals the convolution for all images "
            "has at least rank U + 1 heads; and rank U + 1 heads that look at positions only equal it on all images "
            "of one size. U is the kernel unfolded to K^2 rows and C_in C_out columns, and not 0.",
        ),
        assumptions=(
            "Exact arithmetic; head $h$ computes $softmax(S_h(X)) X W_h$, with scores $S_h$ that are finite and "
            "continuous in $X$ at the blank image $X = 0$ (those of draft, eq. (7), are). The output projection may "
            "have a bias.",
            "From below: some query sees all its taps, and one more key, on pixels that are free. Without that key "
            "$rank U$ heads are still needed.",
            "From above: every target of every query is a key. The values depend on the number of keys.",
        ),
        steps=(
            Step(
                Formula(
                    r"\lim_{\epsilon \to 0} \frac{1}{\epsilon} \sum_h \operatorname{softmax}(S_h(\epsilon X))\,"
                    r" \epsilon X W_h = \sum_h A_h X W_h,\quad A_h = \operatorname{softmax}(S_h(0)) > 0",
                    "lim_{e -> 0} 1/e sum_h softmax(S_h(e X)) e X W_h = sum_h A_h X W_h, A_h = softmax(S_h(0)) > 0",
                ),
                "Linearised at the blank image, content does not count. The convolution is linear (up to its bias, "
                "which is the layer's output for the blank image), so it equals its linear part: the $A_h$ and $W_h$ "
                "express it as position-only heads.",
            ),
            Step(
                Formula(
                    r"N_h = \operatorname{rank} U \implies \operatorname{vec} A_h \in \operatorname{span}"
                    r" \{\operatorname{vec} P_\Delta\}",
                    "N_h = rank U implies that vec A_h is in the span of the vec P_Delta",
                ),
                "$N_h >= rank U$, as for `head-count`. With as many terms as the rank the $vec A_h$ are a basis of "
                "the columns of $P U$. But all $P_Delta$ are 0 at a key that is no tap, and $A_h$ is positive there.",
            ),
            Step(
                Formula(
                    r"A_0 = \frac{1}{n} 1 1^\top,\quad A_i = \frac{1 1^\top + \epsilon \sum_\Delta b_{i, \Delta}"
                    r" P_\Delta}{n + \epsilon \sum_\Delta b_{i, \Delta}},\quad \sum_\Delta b_{i, \Delta} P_\Delta ="
                    r" \frac{1}{\epsilon} \Bigl[ \bigl(n + \epsilon {\textstyle \sum_\Delta} b_{i, \Delta}\bigr) A_i"
                    r" - n A_0 \Bigr]",
                    "A_0 = 1 1^T / n, A_i = (1 1^T + epsilon sum_Delta b_{i,Delta} P_Delta) / (n + epsilon sum_Delta "
                    "b_{i,Delta}), sum_Delta b_{i,Delta} P_Delta = [(n + epsilon sum_Delta b_{i,Delta}) A_i - n A_0] / "
                    "epsilon",
                ),
                "Enough: $n$ keys, $b_1, ..., b_r$ a basis of $U$'s column space, $epsilon$ so small that $A_i > 0$. "
                "Head 0 has equal scores, head $i$ the score $ln(1 + epsilon b_{i,Delta})$ at tap $Delta$ and 0 "
                "elsewhere. They span all that $P U$ needs. The smaller $epsilon$, the larger the values.",
            ),
        ),
        checks=(
            Check(
                "$rank U + 1$ heads with finite scores give the convolution, in fractions",
                Kind.INSTANCES,
                attained_failures,
                cases=tuple(f"2x2 taps, the kernels of `head-count`, {rows}x{columns} keys" for rows, columns in SIZES),
            ),
            Check(
                "a key that is no tap is 0 in all shifts",
                Kind.INSTANCES,
                positive_failures,
                cases=tuple(f"2x2 taps on {rows}x{columns} keys" for rows, columns in SIZES),
            ),
            Check(
                "the linear part of a head at the blank image does not know its content",
                Kind.INSTANCES,
                linear_failures,
                cases=tuple(f"{count} keys, a symbol for everything" for count in KEY_COUNTS),
            ),
        ),
        source="new",
        tests=("proofs.claims.test_sharper.test_softmax_of_finite_scores_equals_a_convolution_with_one_head_more",),
    )
