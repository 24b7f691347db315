"""How many heads a convolution needs if attention looks at positions only.

A position-only head computes A_h X W_h: any matrix A_h over (query, key) pairs, any W_h over channels. Written out,
the layer is the operator sum_h A_h (x) W_h, and the convolution is sum_Delta P_Delta (x) W_Delta with the shift
matrices P_Delta[q, k] = [k = q + Delta]. Rearranged to a matrix from channel pairs to position pairs, the first has
rank at most N_h; the second has the rank of the unfolded kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from conv2attn.proofs import zero_taps
from conv2attn.proofs.claim import Check, Claim, Formula, Kind, Step
from conv2attn.proofs.geometry import pixels
from conv2attn.proofs.head_dimension import Matrix, exact, rank

Kernel = Matrix  # unfolded: a row for each tap, a column for each pair of channels

SHAPE, COLUMNS = (2, 2), 4  # taps, and C_in C_out
KERNELS: dict[str, Kernel] = {
    "generic": ((1, 2, 0, 1), (0, 1, 3, 1), (2, 0, 1, 1), (1, 1, 1, 5)),
    "unit matrices": tuple(tuple(int(i == j) for j in range(4)) for i in range(4)),
    "rank 2": ((1, 0, 2, 1), (0, 1, 1, 1), (1, 1, 3, 2), (2, -1, 3, 1)),
    "one channel": ((1, 0, 0, 0), (-2, 0, 0, 0), (3, 0, 0, 0), (-4, 0, 0, 0)),
    "two zero taps": ((0, 0, 0, 0), (1, 2, 3, 4), (0, 0, 0, 0), (4, 3, 2, 1)),
    "zero": ((0, 0, 0, 0),) * 4,
}


def shifts(size: tuple[int, int], shape: tuple[int, int]) -> list[list[int]]:
    """P_Delta for every tap, flattened over (query, key) pairs; queries are those whose targets are all keys."""
    queries = pixels((size[0] - shape[0] + 1, size[1] - shape[1] + 1))
    pairs = list(product(queries, pixels(size)))
    return [[int(k == (q[0] + m, q[1] + n)) for q, k in pairs] for m, n in pixels(shape)]


def rearranged(kernel: Kernel, size: tuple[int, int]) -> list[list[int]]:
    """The convolution as a matrix: a row for each (query, key) pair, a column for each pair of channels."""
    taps = shifts(size, SHAPE)
    return [
        [sum(shift[pair] * row[column] for shift, row in zip(taps, kernel, strict=True)) for column in range(COLUMNS)]
        for pair in range(len(taps[0]))
    ]


def rank_failures(*, size: tuple[int, int] = (3, 3), heads: Callable[[Kernel], int] = rank) -> list[str]:
    """Whether the rearranged convolution has the rank of the unfolded kernel, the smallest number of heads."""
    failures = []
    for name, kernel in KERNELS.items():
        needed = rank(rearranged(kernel, size))
        if needed != heads(kernel):
            failures.append(f"{name}: the rearranged convolution has rank {needed}, not {heads(kernel)}")
    return failures


def independence_failures(
    sizes: Iterable[tuple[int, int]] = ((2, 2), (2, 3), (4, 3)), *, shape: tuple[int, int] = SHAPE
) -> list[str]:
    """Whether the shift matrices of the taps are linearly independent, as soon as there is one query."""
    ranks = {size: rank(shifts(size, shape)) for size in sizes}
    taps = shape[0] * shape[1]
    return [f"{size}: {taps} shifts have rank {found}" for size, found in ranks.items() if found != taps]


def mixed_heads(kernel: Kernel) -> tuple[DomainMatrix, DomainMatrix]:
    """U = A W: each column of A is a head's attention over the taps, positive and of sum 1; each row of W its value.

    The columns of A are 1 and 1 + epsilon b for a basis b of the column space of U, scaled: rank U + 1 at most.
    """
    taps = len(kernel)
    basis = [exact(kernel).extract(list(range(taps)), [p]).to_list_flat() for p in exact(kernel).rref()[1]]
    rows = [[QQ(1, taps)] * taps]
    for b in basis:
        positive = [1 + entry / (1 + max(map(abs, b))) for entry in b]
        rows.append([entry / sum(positive) for entry in positive])
    attention_ = DomainMatrix(rows, (len(rows), taps), QQ).transpose()
    independent = list(attention_.rref()[1])
    attention_ = attention_.extract(list(range(taps)), independent)
    gram = attention_.transpose() * attention_
    return attention_, gram.inv() * attention_.transpose() * exact(kernel)


def mixed_failures(*, most: Callable[[Kernel], int] = lambda kernel: rank(kernel) + 1) -> list[str]:
    """Whether U = A W with A positive, columns of sum 1, and at most so many heads."""
    failures = []
    for name, kernel in KERNELS.items():
        weights, values = mixed_heads(kernel)
        columns = weights.transpose().to_list()
        if weights * values != exact(kernel):
            failures.append(f"{name}: the heads give {weights * values}")
        if not all(sum(column) == 1 and min(column) > 0 for column in columns):
            failures.append(f"{name}: not a probability distribution with all taps: {columns}")
        if len(columns) > most(kernel):
            failures.append(f"{name}: {len(columns)} heads, more than {most(kernel)}")
    return failures


def claims() -> list[Claim]:
    """Claim 11 (c)."""
    return [_count(), *zero_taps.claims()]


def _count() -> Claim:
    names = tuple(f"2x2 taps, 4 pairs of channels: {name}, rank {rank(kernel)}" for name, kernel in KERNELS.items())
    return Claim(
        name="head-count",
        title="The number of heads is the rank of the unfolded kernel, or one more",
        statement=Formula(
            r"\operatorname{rank} U \le N_h^{\min} \le \min(\operatorname{rank} U + 1, \#\{\Delta : W_\Delta \ne 0\}),"
            r"\quad U = \bigl(\operatorname{vec} W_\Delta\bigr)_\Delta \in \mathbb{R}^{K^2 \times C_{in} C_{out}}",
            "rank U <= smallest number of position-only heads <= min(rank U + 1, number of non-zero taps), with U the "
            "kernel unfolded to K^2 rows and C_in C_out columns. Generic kernels with C_in C_out >= K^2 need exactly "
            "K^2 "
            "heads; a kernel of one input and one output channel needs at most 2, whatever its size.",
        ),
        assumptions=(
            "Attention does not look at the content: head h computes A_h X W_h with A_h fixed, rows of sum 1, "
            "no entry negative.",
            "Some query sees all its taps on pixels that are free (inside the image); then the lower bound holds for "
            "any "
            "real A_h.",
            "The upper bound lets a head attend to several taps: A_h is a limit of softmaxes of scores that depend on "
            "delta, not of one quadratic score, unless it is one-hot.",
        ),
        steps=_count_steps(),
        checks=(
            Check(
                "the shift matrices of the taps are independent",
                Kind.INSTANCES,
                independence_failures,
                cases=("2x2 taps on 2x2, 2x3 and 4x3 keys",),
            ),
            Check(
                "the rearranged convolution has the rank of the unfolded kernel",
                Kind.INSTANCES,
                rank_failures,
                cases=names,
            ),
            Check("rank U + 1 positive heads give the kernel, exactly", Kind.INSTANCES, mixed_failures, cases=names),
        ),
        source="new",
    )


def _count_steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"\sum_h A_h \otimes W_h = \sum_\Delta P_\Delta \otimes W_\Delta",
                "sum_h A_h (x) W_h = sum_Delta P_Delta (x) W_Delta",
            ),
            "Both layers are linear in X; they agree for all X iff these operators do. P_Delta[q, k] = [k = q + "
            "Delta].",
        ),
        Step(
            Formula(
                r"\operatorname{rank} \sum_h \operatorname{vec}(A_h) \operatorname{vec}(W_h)^\top \le N_h",
                "rank of sum_h vec(A_h) vec(W_h)^T <= N_h",
            ),
            "Rearrange the operators to matrices, (query, key) pairs by channel pairs: a sum of N_h matrices of rank "
            "1.",
        ),
        Step(
            Formula(
                r"\operatorname{rank} \sum_\Delta \operatorname{vec}(P_\Delta) \operatorname{vec}(W_\Delta)^\top"
                r" = \operatorname{rank}(P\, U) = \operatorname{rank} U",
                "rank of sum_Delta vec(P_Delta) vec(W_Delta)^T = rank(P U) = rank U",
            ),
            "The columns vec(P_Delta) of P have disjoint supports, none empty: P is injective. So N_h is at least "
            "rank U.",
        ),
        Step(
            Formula(
                r"C_{in} C_{out} \ge K^2 \implies \operatorname{rank} U = K^2 \text{ but on a null set}",
                "C_in C_out >= K^2 implies rank U = K^2 for all kernels but a null set",
            ),
            "A minor of side K^2 is a polynomial that is 1 where the slices are different unit matrices, hence not "
            "zero. "
            "K^2 one-hot heads suffice (claim head-assembly). With g groups C_in C_out / g counts.",
        ),
        Step(
            Formula(
                r"U = A W,\quad A \in \mathbb{R}^{K^2 \times (r + 1)} \text{ positive},\ 1^\top A = 1^\top",
                "U = A W with A (K^2 x (r + 1)) positive and columns of sum 1, r = rank U",
            ),
            "Columns of A: the all-ones vector and 1 + epsilon b for a basis b of U's column space, scaled. They "
            "span it. "
            "Head h attends to tap Delta with probability A[Delta, h]: sum_h A_h (x) W_h = sum_Delta P_Delta (x) "
            "W_Delta.",
        ),
        Step(
            Formula(
                r"N_h^{\min} = \operatorname{rank} U \iff \text{the column space of } U \text{ has a basis} \ge 0",
                "rank U heads are enough iff the column space of U has a basis without negative entries",
            ),
            "With rank U terms every vec(A_h) lies in P times that column space, and A_h >= 0. One channel, taps of "
            "both "
            "signs: two heads, one for each sign.",
        ),
    )
