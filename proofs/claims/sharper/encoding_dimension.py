"""An encoding of dimension two is enough for heads that sit on one tap each: number the positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import sympy

from ...prover.checks import Expr, all_equal, equal, not_positive, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..certificate.tail import MAJORANT
from ..common.scores import Point, dot, encoding, head_vector, minus
from ..common.small import points
from ..theorem.one_hot import Q

ALPHA, FLAT, TARGET, MULTIPLIER = sympy.symbols("alpha t T M", real=True)
OFFSET, CENTER = sympy.symbols("delta_1 delta_2", real=True), sympy.symbols("Delta_1 Delta_2", real=True)
SCORE = -ALPHA * (FLAT - TARGET) ** 2 + ALPHA * TARGET**2
COLUMNS = sympy.Symbol("w", integer=True, positive=True)
ALL_OFFSETS, ONE_QUERY = 2 * COLUMNS - 1, COLUMNS  # the smallest M
LINE_TAIL = 2 * Q / (1 + Q)
GRIDS = ((1, 4), (2, 1), (2, 2), (3, 4), (4, 3))


def flattened(delta: Sequence[Expr], multiplier: Expr) -> Expr:
    """t = M delta_1 + delta_2."""
    return multiplier * delta[0] + delta[1]


def injectivity_failures(*, all_offsets: Expr = ALL_OFFSETS, one_query: Expr = ONE_QUERY) -> Failures:
    """Fails unless offsets that differ in their rows differ in t by at least 1 from these M on and no smaller ones.

    M delta_1 + delta_2 - (M delta_1' + delta_2') = M a - b with a = delta_1 - delta_1' >= 1 and b = delta_2' - delta_2
    at most 2 w - 2 for all offsets of a grid, and at most w - 1 for two keys seen from one query.
    """
    wider, more, a, slack = sympy.symbols("u e a s", integer=True, nonnegative=True)  # w = 1 + u, and a + 1 for a >= 1
    spreads = (("all offsets", all_offsets, 2 * COLUMNS - 2), ("one query", one_query, COLUMNS - 1))
    for what, smallest, spread in spreads:
        difference = (smallest + more) * (1 + a) - (spread - slack)
        tie = flattened((1, 0), spread), flattened((0, spread), spread)
        yield from not_positive(difference.subs(COLUMNS, 1 + wider), f"{what}: M a - b for M >= {smallest}")
        yield from unequal(smallest - 1, spread, f"{what}: the next smaller M occurs as b")
        yield from unequal(*tie, f"{what}: a tie for M = {spread}")


def flattened_failures(
    grids: Iterable[tuple[int, int]] = GRIDS, *, multiplier: Callable[[int], int] = lambda width: width
) -> Failures:
    """Fails unless v . r is largest at the target only, by at least 1 for alpha = 1: every query, every target."""
    for size in grids:
        M = multiplier(size[1])
        for q, target in product(points(size), repeat=2):
            numbers = {k: (flattened(minus(k, q), M),) for k in points(size)}
            scores = {k: dot(head_vector(numbers[target], 1), encoding(t)) for k, t in numbers.items()}
            rivals = (k for k, score in scores.items() if k != target and score > scores[target] - 1)
            yield from (f"{size}, M = {M}, query {q}: key {k} rivals target {target}" for k in rivals)


@claim(
    status=Status.COQ,
    scope=r"Padded grids of at most $M$ columns, where $M$ is an integer: this encoding depends on the width. The "
    r"layer is otherwise that of `head-assembly`; $\alpha > 0$, exact arithmetic.",
    coq=("Dimension.v: encoding_identity_2, unique_maximum_2, tau_line_bound, theorem_1_with_two_dimensions",),
    tests=("proofs/claims/test_sharper.py",),
)
def two_dimensions_suffice(
    *,
    encoding: Callable[[Point], Point] = encoding,
    head_vector: Callable[..., Point] = head_vector,
    tail: Expr = LINE_TAIL,
) -> Checks:
    r"""An encoding of dimension 2 expresses every convolution, on grids of bounded width.

    Number the offsets row by row, $M$ apart: $t = {=flattened(OFFSET, MULTIPLIER)}$ and
    $T = {=flattened(CENTER, MULTIPLIER)}$. With $r_\delta = {=encoding((FLAT,))}$ and
    $v_h = {=scaled(-ALPHA, head_vector((TARGET,), ALPHA))}$,

    ```math
    v_h \cdot r_\delta = {=SCORE} .
    ```

    Of all keys the target alone has the largest score, by at least $\alpha$. With $q = e^{-\alpha}$ the layer differs
    from the convolution by at most

    ```math
    \tau_1 \sum_c \operatorname{osc}_c \sum_\Delta |W_{o,c,\Delta}| , \qquad
    \tau_1 = 1 - \vartheta_3(q)^{-1} \le {=LINE_TAIL} .
    ```

    **Proof.** The formula for the score is `encoding-identity` along one axis. Let $k$ be a key and $k^*$ the target
    of the head, on a grid of ${=COLUMNS} \le M$ columns. The query cancels in
    $t - T = M (k_1 - k^*_1) + (k_2 - k^*_2)$. If the rows of $k$ and $k^*$ differ, the first term is at least $M$ in
    size and the second at most ${=COLUMNS - 1}$; if only the columns differ, the first is 0 and the second is not. So
    the numbers $t - T$ of the keys are different integers, and 0 is the target's: the gap is $\alpha$, and the weights
    of the keys, divided by the target's, are different terms of $\vartheta_3(q) = \sum_{n \in \mathbb{Z}} q^{n^2}$,
    which is at most ${=MAJORANT}$ (`tail-bound`). The output's error follows as in `error-bound`. $\square$

    So $M = {=ONE_QUERY}$ suffices. No smaller $M \ge 1$ does if there are two rows, because the keys $(1, 0)$ and
    $(0, M)$ have the same number. For all offsets of the grid to have different encodings, the smallest is
    $M = {=ALL_OFFSETS}$. (This paragraph is checked by algebra, not by Coq.) `absolute-positions` is no contradiction:
    three dimensions are needed there for the attention of the quadratic encoding, and this is another attention with
    the same limit.
    """
    product = dot(head_vector((TARGET,), ALPHA), encoding((FLAT,)))
    yield equal(r"$v \cdot r$ is the score of the statement", product, SCORE)
    yield Check(
        "offsets have different numbers from the two values of $M$ on, and from no smaller", injectivity_failures
    )
    yield equal("the tail is at most its bound", 1 - 1 / MAJORANT, tail)
    yield Check(
        "the target alone has the largest score: every query, every target", flattened_failures, f"{len(GRIDS)} grids"
    )


FOLDED, FIRST, SECOND = sympy.symbols("z m n", integer=True)
STEPS, LEFT, RIGHT = sympy.symbols("j m n", integer=True, nonnegative=True)


def fold(z: Expr) -> Expr:
    """Integers to natural numbers: 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    return abs(2 * z + sympy.Rational(1, 2)) - sympy.Rational(1, 2)


def pairing(m: Expr, n: Expr) -> Expr:
    """Cantor's: pairs of natural numbers, diagonal by diagonal."""
    return (m + n) * (m + n + 1) / sympy.Integer(2) + n


@claim(
    status=Status.ALGEBRA,
    scope="Images of every size, with one encoding for all of them; otherwise as for `two-dimensions-suffice`.",
    tests=("proofs/claims/test_sharper.py",),
    is_lemma=True,
)
def two_dimensions_for_every_width(
    *, fold: Callable[[Expr], Expr] = fold, pairing: Callable[[Expr, Expr], Expr] = pairing
) -> Checks:
    r"""With an injection of the plane into the integers, the encoding of dimension 2 depends on no width.

    Let $\varphi: \mathbb{Z}^2 \to \mathbb{Z}$ be injective, $t = \varphi(\delta)$ and $T = \varphi(\Delta)$: then
    `two-dimensions-suffice` holds for every width, since its proof needs only that the numbers $t - T$ of the keys are
    different integers. One such map is $\varphi(\delta) = \pi(f(\delta_1), f(\delta_2))$ with $f(z) = {=fold(FOLDED)}$
    and $\pi(m, n) = {=pairing(FIRST, SECOND)}$. Indeed $f$ takes $z = j \ge 0$ to $2 j$ and $z = -1 - j$ to $2 j + 1$;
    and $\pi(m, n)$ lies $n$ after the start $\pi(m + n, 0)$ of its diagonal and $m + 1$ before the next, so it tells
    $m + n$, then $n$. The scores grow with the fourth power of the distance.
    """
    yield all_equal(
        "$f$ takes integers to different natural numbers",
        {"0, 1, 2, ...": (fold(STEPS), 2 * STEPS), "-1, -2, ...": (fold(-1 - STEPS), 2 * STEPS + 1)},
    )
    yield all_equal(
        "$\\pi$ takes pairs of natural numbers to different ones",
        {
            "from the start of the diagonal": (pairing(LEFT, RIGHT) - pairing(LEFT + RIGHT, sympy.Integer(0)), RIGHT),
            "to the next": (pairing(LEFT + RIGHT + 1, sympy.Integer(0)) - pairing(LEFT, RIGHT), LEFT + 1),
        },
    )
