"""A head's score has one maximum, and its softmax tends to one-hot as alpha grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, has_negative_coefficient, unequal
from ...prover.formula import fill

ALPHA, Q = sympy.Symbol("alpha", positive=True), sympy.Symbol("q", positive=True)
OTHER_KEYS = range(1, 4)
AXES = (1, 2, 3)


COUNT = sympy.Symbol("n", positive=True)  # other keys
LOWEST, LINEAR = 1 / (1 + COUNT * Q), 1 - COUNT * Q


def squared_distance(delta: Sequence[Expr], center: Sequence[Expr]) -> Expr:
    """|delta - Delta|^2."""
    return sum((a - b) ** 2 for a, b in zip(delta, center, strict=True))


def gap_failures(*, distance: Callable[..., Expr] = squared_distance, gap: int = 1) -> list[str]:
    """Whether every other pixel scores less than the target by at least gap * alpha, and one by exactly that."""
    failures = []
    for axes in AXES:
        center = sympy.symbols(f"Delta1:{axes + 1}", integer=True)
        failures += unequal(distance(center, center), 0, f"n = {axes}: the target's own distance")
        for different in range(axes):  # on this axis; on the others it may be
            moved = [sympy.Symbol(f"u{i}", integer=True, nonzero=i == different or None) for i in range(axes)]
            loss = sympy.expand(distance([c + u for c, u in zip(center, moved, strict=True)], center))
            if not (loss.is_integer and loss.is_positive):
                failures.append(f"{loss} is not known to be a positive integer, hence at least 1")
            beside = [c + int(i == different) for i, c in enumerate(center)]
            failures += unequal(distance(beside, center), gap, f"n = {axes}: the distance of a neighbour")
    if gap > 1:
        failures.append(f"a positive integer need not be at least {gap}")
    return failures


def rate_failures(*, bound: Expr = LINEAR, limit: Expr = 1) -> list[str]:
    """Whether 1 / (1 + n q) is at least the bound for every n >= 0, and tends to the limit as q -> 0."""
    failures = has_negative_coefficient(LOWEST - bound, f"1 / (1 + n q) minus {bound}")
    return failures + unequal(sympy.limit(LOWEST.subs(Q, sympy.exp(-ALPHA)), ALPHA, sympy.oo), limit, "its limit")


def symbolic_distances(count: int) -> tuple[Expr, ...]:
    """d_1, ..., d_count: any positive integers."""
    return tuple(sympy.symbols(f"d1:{count + 1}", integer=True, positive=True))


def limit_failures(
    *, distances: Callable[[int], Sequence[Expr]] = symbolic_distances, target: Expr = 1, others: Expr = 0
) -> list[str]:
    """Whether softmax(0, -alpha d_1, -alpha d_2, ...) tends to (target, others, others, ...)."""
    failures = []
    for n in OTHER_KEYS:
        weights = [sympy.Integer(1), *(sympy.exp(-ALPHA * d) for d in distances(n))]
        for number, weight in enumerate(weights):
            limit = sympy.limit(weight / sympy.Add(*weights), ALPHA, sympy.oo)
            failures += unequal(limit, others if number else target, f"limit of weight {number} with {n} other keys")
    return failures


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_unique_maximum(), _one_hot_limit()]


def _unique_maximum() -> Claim:
    return Claim(
        name="unique-maximum",
        title="A head's score has one maximum, and a gap below it",
        statement=Formula(
            r"\delta, \Delta \in \mathbb{Z}^n,\ \delta \ne \Delta \implies -\alpha |\delta - \Delta|^2 \le -\alpha",
            "For delta, Delta in Z^n with delta != Delta: -alpha |delta - Delta|^2 <= -alpha, with equality for "
            "neighbours; delta = Delta scores 0.",
        ),
        assumptions=("$alpha > 0$.", "Pixels and centres have integer coordinates, along any number of axes."),
        steps=(
            Step(
                Formula(
                    r"|\delta - \Delta|^2 = \sum_{i=1}^{n} u_i^2,\quad u = \delta - \Delta \in \mathbb{Z}^n \setminus"
                    r" \{0\}",
                    "|delta - Delta|^2 = sum_i u_i^2 with u = delta - Delta in Z^n, not 0",
                ),
                "The difference of two different points of $Z^n$ is a point of $Z^n$ other than the origin.",
            ),
            Step(
                Formula(r"\sum_i u_i^2 \ge 1", "sum_i u_i^2 >= 1"),
                "It is an integer, and positive because some $u_i$ is not 0. At the neighbours it is 1: the gap is "
                "attained.",
            ),
        ),
        checks=(
            Check(
                "the squared distance is a positive integer if a coordinate differs, and 1 for a neighbour",
                Kind.INSTANCES,
                gap_failures,
                cases=tuple(f"$n = {axes}$, every axis, for all integers" for axes in AXES),
            ),
        ),
        justifies=(
            "conv2attn.convert.heads.encoding.head_vectors",
            "conv2attn.convert.attention.construction.attention_from_conv",
        ),
        source="draft, after eq. (11)",
        tests=(
            "proofs.claims.test_tail.test_the_score_of_the_code_loses_the_squared_distance",
            "convert.heads.test_encoding.test_the_center_wins_by_a_gap_of_at_least_alpha",
        ),
        formal=("Encoding.unique_maximum",),
    )


def _one_hot_limit() -> Claim:
    return Claim(
        name="one-hot-limit",
        title="The softmax tends to one-hot",
        statement=Formula(
            r"\lim_{\alpha \to \infty} \frac{e^{-\alpha |k - t|^2}}{\sum_{l \in \mathcal{K}} e^{-\alpha |l - t|^2}}"
            r" = \begin{cases} 1 & k = t \\ 0 & k \ne t \end{cases}",
            "For a finite key set that contains the target t, softmax_k(-alpha |k - t|^2) tends to 1 at k = t and to 0 "
            "at every other key as alpha -> infinity.",
        ),
        assumptions=("The key set is finite, a subset of $Z^n$, and contains the target.",),
        steps=(
            Step(
                Formula(
                    r"p_t = \Bigl(1 + \sum_{k \ne t} q^{d_k}\Bigr)^{-1},\quad q = e^{-\alpha},\ d_k = |k - t|^2 \ge 1",
                    "p_t = 1 / (1 + sum_{k != t} q^(d_k)) with q = exp(-alpha) and integers d_k = |k - t|^2 >= 1",
                ),
                "The target's own exponent is 0; the others are at least 1 by the claim `unique-maximum`.",
            ),
            Step(
                fill(
                    r"1 \ge p_t \ge $lowest \ge $linear \to 1",
                    "1 >= p_t >= $lowest >= $linear -> 1",
                    lowest=LOWEST,
                    linear=LINEAR,
                ),
                "There are $n$ other keys, and $q^d <= q$ for $d >= 1$ because $0 < q < 1$; $q -> 0$ as "
                "$alpha -> infinity$.",
            ),
            Step(
                Formula(r"0 \le p_k \le 1 - p_t \to 0", "0 <= p_k <= 1 - p_t -> 0 for k != t"),
                "Probabilities are not negative and sum to 1.",
            ),
        ),
        checks=(
            Check("$1 / (1 + n q)$ is at least $1 - n q$, and tends to 1", Kind.SYMBOLIC, rate_failures),
            Check(
                "the limit of every probability, for any positive distances",
                Kind.INSTANCES,
                limit_failures,
                cases=tuple(f"{n + 1} keys, at distances 0 and $d_1, ..., d_{n}$" for n in OTHER_KEYS),
            ),
        ),
        justifies=("conv2attn.convert.engines.literal.attention_probabilities",),
        source="draft, section 3.1; the theorem of the article and the talk",
        tests=("convert.heads.test_regime.test_from_the_threshold_on_softmax_is_exactly_one_hot",),
        formal=("Softmax.softmax_tail",),
    )
