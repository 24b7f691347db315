"""Learned row and column encodings: which score tables make a head attend to one pixel.

A head scores a key at delta with row[delta_1] + column[delta_2], as in the article's experiment. This says which
tables give one-hot attention in the limit alpha -> infinity, and which not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from ...prover.old.claim import Check, Claim, Formula, Kind, Step

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
        scores = {k: row[k[0] - q[0]] + column[k[1] - q[1]] for k in product(*map(range, size))}
        best = max(scores.values())
        if [k for k, score in scores.items() if score == best] != [(q[0] + center[0], q[1] + center[1])]:
            return False
    return True


def learned_failures(*, criterion: Callable[[Table, int], bool] = is_strict_maximum) -> list[str]:
    """Compares the criterion with the keys' scores for all tables over a few levels, grids and centres."""
    failures = []
    for size in GRIDS:
        for center in product((0, 1), (0, -1)):
            queries = [valid_queries(length, c) for length, c in zip(size, center, strict=True)]
            if not all(queries):
                continue
            rows, columns = (_tables(offsets(n, axis)) for n, axis in zip(size, queries, strict=True))
            for row, column in product(rows, columns):
                claimed = criterion(row, center[0]) and criterion(column, center[1])
                if claimed != attends_to_target(row, column, size=size, center=center):
                    failures.append(f"{size}, centre {center}, rows {row}, columns {column}: criterion says {claimed}")
    return failures[:3]


def _tables(indices: Sequence[int]) -> list[Table]:
    """All tables with these indices and values among the levels."""
    return [dict(zip(indices, values, strict=True)) for values in product(LEVELS, repeat=len(indices))]


def claims() -> list[Claim]:
    """The claims of this file."""
    return [
        Claim(
            name="learned-encodings",
            title="Which learned row and column scores attend to one pixel",
            statement=Formula(
                r"\begin{gathered} \operatorname{softmax}(\alpha (a_{\delta_1} + b_{\delta_2})) \to [\delta = \Delta]"
                r" \text{ for every query} \\ \iff a_{\Delta_1} > a_{\delta_1} \text{ and } b_{\Delta_2} > b_{\delta_2}"
                r" \text{ for all other offsets } \delta_1, \delta_2 \text{ that occur} \end{gathered}",
                "softmax(alpha (a[delta_1] + b[delta_2])) tends to one-hot at Delta for every query iff a[Delta_1] is "
                "larger than a at every other row offset that occurs, and b[Delta_2] than b at every other column "
                "offset.",
            ),
            assumptions=(
                "Keys form a full grid, and every query's target $q + Delta$ is one of them.",
                "The offsets that occur are those of some query and some key; $a$ and $b$ are any real numbers.",
            ),
            steps=(
                Step(
                    Formula(
                        r"\operatorname{softmax}(\alpha s) \to [k = t] \iff s_t > s_k \text{ for all } k \ne t",
                        "softmax(alpha s) -> one-hot at t iff s_t > s_k for all k != t",
                    ),
                    "$p_t = 1 / (1 + sum_{k != t} exp(-alpha (s_t - s_k)))$: every exponent must tend to minus "
                    "infinity.",
                ),
                Step(
                    Formula(
                        r"a_{\Delta_1} + b_{\Delta_2} > a_{\delta_1} + b_{\delta_2} \text{ for } \delta \ne \Delta",
                        "a[Delta_1] + b[Delta_2] > a[delta_1] + b[delta_2] for every delta != Delta",
                    ),
                    "Sufficient: add the two inequalities; one of them is strict, the other at least an equality.",
                ),
                Step(
                    Formula(
                        r"\delta = (\delta_1, \Delta_2):\ a_{\Delta_1} > a_{\delta_1}; \quad"
                        r" \delta = (\Delta_1, \delta_2):\ b_{\Delta_2} > b_{\delta_2}",
                        "delta = (delta_1, Delta_2): a[Delta_1] > a[delta_1]; delta = (Delta_1, delta_2): b[Delta_2] > "
                        "b[delta_2]",
                    ),
                    "Necessary: take the query for which $delta_1$ occurs. The grid is full and contains the target, "
                    "so the key in the target's column at row offset $delta_1$ exists. The other axis likewise.",
                ),
            ),
            checks=(
                Check(
                    "the criterion against all keys' scores",
                    Kind.INSTANCES,
                    learned_failures,
                    cases=tuple(f"{rows}x{columns}, every table over 0, 1, 2, four centres" for rows, columns in GRIDS),
                ),
            ),
            source="new; the article's learned row and column encodings",
            tests=("proofs.claims.test_sinusoidal.test_learned_tables_need_a_strict_maximum_only_where_offsets_occur",),
        )
    ]
