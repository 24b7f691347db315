"""Learned row and column encodings, as in the article's experiment: which tables make a head attend to one pixel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.small import points

GRIDS = ((2, 2), (2, 3), (3, 1))
LEVELS = (0, 1, 2)

Table = Mapping[int, int]


def offsets(length: int, queries: Sequence[int]) -> list[int]:
    """All k - q along an axis of this length, for these queries."""
    return sorted({key - query for key in range(length) for query in queries})


def valid_queries(length: int, center: int) -> list[int]:
    """The queries whose target lies on the axis."""
    return [query for query in range(length) if 0 <= query + center < length]


def is_strict_maximum(table: Table, center: int) -> bool:
    """The criterion on one axis: the target's score exceeds that of every other offset that occurs."""
    return all(score < table[center] for offset, score in table.items() if offset != center)


def attends_to_target(row: Table, column: Table, *, size: tuple[int, int], center: tuple[int, int]) -> bool:
    """Whether, for every query whose target is on the grid, the target is the only key with the largest score."""
    queries = product(*(valid_queries(length, c) for length, c in zip(size, center, strict=True)))
    for q in queries:
        scores = {k: row[k[0] - q[0]] + column[k[1] - q[1]] for k in points(size)}
        best = max(scores.values())
        if [k for k, score in scores.items() if score == best] != [(q[0] + center[0], q[1] + center[1])]:
            return False
    return True


def learned_failures(*, criterion: Callable[[Table, int], bool] = is_strict_maximum) -> Failures:
    """Fails unless the criterion agrees with the keys' scores: all tables over a few levels, grids and centres."""
    for size in GRIDS:
        for center in product((0, 1), (0, -1)):
            queries = [valid_queries(length, c) for length, c in zip(size, center, strict=True)]
            if not all(queries):
                continue
            rows, columns = (_tables(offsets(n, axis)) for n, axis in zip(size, queries, strict=True))
            for row, column in product(rows, columns):
                claimed = criterion(row, center[0]) and criterion(column, center[1])
                if claimed != attends_to_target(row, column, size=size, center=center):
                    yield f"{size}, centre {center}, rows {row}, columns {column}: criterion says {claimed}"


def _tables(indices: Sequence[int]) -> list[Table]:
    return [dict(zip(indices, values, strict=True)) for values in product(LEVELS, repeat=len(indices))]


@claim(
    status=Status.INSTANCES,
    scope=r"The keys form a full grid, and the target $q + \Delta$ of every query is one of them. $a$ and $b$ are any "
    r"real numbers; the offsets that occur are those of some query and some key.",
    source="new; the article's learned row and column encodings",
    tests=("proofs/claims/test_sinusoidal.py",),
    is_lemma=True,
)
def learned_encodings() -> Checks:
    r"""Which learned row and column scores attend to one pixel.

    As $\alpha \to \infty$, $\operatorname{softmax}(\alpha (a_{\delta_1} + b_{\delta_2}))$ tends to one-hot at
    $\delta = \Delta$ for every query if and only if $a_{\Delta_1} > a_{\delta_1}$ and $b_{\Delta_2} > b_{\delta_2}$
    for all other offsets that occur.

    **Proof.** The target's probability is $1 / (1 + \sum_{k \ne t} e^{-\alpha (s_t - s_k)})$, which tends to 1 if and
    only if $s_t > s_k$ for all other keys. The condition is sufficient: add the two inequalities, of which at least
    one is strict. It is necessary: for a query for which $\delta_1$ occurs, the key in the target's column at row
    offset $\delta_1$ is on the grid, and scores less than the target only if $a_{\delta_1} < a_{\Delta_1}$; the same
    holds for the columns. $\square$
    """
    yield Check(
        "the criterion against all keys' scores",
        learned_failures,
        f"{len(GRIDS)} grids, every table over {', '.join(map(str, LEVELS))}, four centres",
    )
