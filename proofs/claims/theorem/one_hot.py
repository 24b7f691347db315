"""A head's score has one maximum, and its softmax tends to one-hot as alpha grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from ...prover.checks import Expr, has_negative_coefficient, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import squared_distance

ALPHA, Q = sympy.Symbol("alpha", positive=True), sympy.Symbol("q", positive=True)
OTHER_KEYS = range(1, 4)
AXES = (1, 2, 3)
COUNT = sympy.Symbol("n", positive=True)  # other keys
LOWEST, LINEAR = 1 / (1 + COUNT * Q), 1 - COUNT * Q


def gap_failures(*, distance: Callable[..., Expr] = squared_distance, gap: int = 1) -> Failures:
    """Fails unless every other pixel scores less than the target by at least gap * alpha, and one by exactly that."""
    for axes in AXES:
        center = sympy.symbols(f"Delta1:{axes + 1}", integer=True)
        yield from unequal(distance(center, center), 0, f"n = {axes}: the target's own distance")
        for different in range(axes):  # on this axis; on the others it may be
            moved = [sympy.Symbol(f"u{i}", integer=True, nonzero=i == different or None) for i in range(axes)]
            loss = sympy.expand(distance(tuple(c + u for c, u in zip(center, moved, strict=True)), center))
            if not (loss.is_integer and loss.is_positive):
                yield f"{loss} is not known to be a positive integer, hence at least 1"
            beside = tuple(c + int(i == different) for i, c in enumerate(center))
            yield from unequal(distance(beside, center), gap, f"n = {axes}: the distance of a neighbour")
    if gap > 1:
        yield f"a positive integer need not be at least {gap}"


def rate_failures(*, bound: Expr = LINEAR, limit: Expr = 1) -> Failures:
    """Fails unless 1 / (1 + n q) is at least the bound for every n >= 0, and tends to the limit as q -> 0."""
    yield from has_negative_coefficient(LOWEST - bound, f"1 / (1 + n q) minus {bound}")
    yield from unequal(sympy.limit(LOWEST.subs(Q, sympy.exp(-ALPHA)), ALPHA, sympy.oo), limit, "its limit")


def symbolic_distances(count: int) -> tuple[Expr, ...]:
    """d_1, ..., d_count: any positive integers."""
    return tuple(sympy.symbols(f"d1:{count + 1}", integer=True, positive=True))


def limit_failures(
    *, distances: Callable[[int], Sequence[Expr]] = symbolic_distances, target: Expr = 1, others: Expr = 0
) -> Failures:
    """Fails unless softmax(0, -alpha d_1, -alpha d_2, ...) tends to (target, others, others, ...)."""
    for n in OTHER_KEYS:
        weights = [sympy.Integer(1), *(sympy.exp(-ALPHA * d) for d in distances(n))]
        for number, weight in enumerate(weights):
            limit = sympy.limit(weight / sympy.Add(*weights), ALPHA, sympy.oo)
            yield from unequal(limit, others if number else target, f"limit of weight {number} with {n} other keys")


@claim(
    status=Status.COQ,
    scope=r"$\alpha > 0$; pixels and centres in $\mathbb{Z}^n$, for any $n$.",
    source="draft, after eq. (11)",
    justifies=("convert/heads/encoding.py: head_vectors", "convert/layer/construction.py: attention_from_conv"),
    coq=("Encoding.v: unique_maximum_n, unique_maximum",),
    tests=("proofs/claims/test_tail.py", "convert/heads/test_encoding.py"),
    is_lemma=True,
)
def unique_maximum() -> Checks:
    r"""A head's score has one maximum, and a gap of alpha below it.

    For $\delta \ne \Delta$, $-\alpha |\delta - \Delta|^2 \le -\alpha$: the squared distance is an integer, and
    positive because a coordinate differs. Neighbours attain the gap.
    """
    yield Check("the squared distance is a positive integer, and 1 for a neighbour", gap_failures, "$n = 1, 2, 3$")


@claim(
    status=Status.COQ,
    scope=r"Finitely many keys in $\mathbb{Z}^n$, the target $t$ among them.",
    source="draft, section 3.1; the theorem of the article and the talk",
    justifies=("convert/engines/literal.py: attention_probabilities",),
    coq=("Softmax.v: softmax_tail",),
    tests=("convert/heads/test_regime.py",),
    is_lemma=True,
)
def one_hot_limit() -> Checks:
    r"""The softmax tends to one-hot.

    With ${=COUNT}$ other keys, at squared distances $d_k \ge 1$ (`unique-maximum`), and $q = e^{-\alpha}$, the
    target's probability is $p_t = (1 + \sum_k q^{d_k})^{-1}$, so

    ```math
    1 \ge p_t \ge {=LOWEST} \ge {=LINEAR} \to 1 \qquad (\alpha \to \infty),
    ```

    and every other probability is at most $1 - p_t \to 0$. `tail-bound` makes the rate independent of the number of
    keys.
    """
    yield Check("$1 / (1 + n q)$ is at least $1 - n q$, and tends to 1", rate_failures)
    yield Check("the limits of all probabilities, at any positive distances", limit_failures, "2, 3 and 4 keys")
