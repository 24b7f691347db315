"""How many heads come arbitrarily near a convolution, if attention looks at positions only.

A position-only head computes A_h X W_h: a matrix A_h over (query, key) pairs, any W_h over channels. Written out,
the layer is the operator sum_h A_h (x) W_h, and the convolution is sum_Delta P_Delta (x) W_Delta with the shift
matrices P_Delta[q, k] = [k = q + Delta]. Rearranged to a matrix from channel pairs to position pairs, the first has
rank at most N_h; the second has the rank of the unfolded kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ..common.small_convolutions import pixels
from .head_dimension import exact, rank
from .head_mixtures import KERNELS, Heads, Kernel, mixed_heads, near_heads, random_kernels, with_values
from .nonnegative import column_basis, complement, dimension, rays

SHAPE = (2, 2)  # taps
ETAS = (QQ(1, 10), QQ(1, 10**6))


def shifts(size: tuple[int, int], shape: tuple[int, int]) -> list[list[int]]:
    """P_Delta for every tap, flattened over (query, key) pairs; queries are those whose targets are all keys."""
    queries = pixels((size[0] - shape[0] + 1, size[1] - shape[1] + 1))
    pairs = list(product(queries, pixels(size)))
    return [[int(k == (q[0] + m, q[1] + n)) for q, k in pairs] for m, n in pixels(shape)]


def rearranged(kernel: Kernel, size: tuple[int, int]) -> DomainMatrix:
    """The convolution as a matrix: a row for each (query, key) pair, a column for each pair of channels."""
    return exact(shifts(size, SHAPE)).transpose() * exact(kernel)


def rank_failures(*, size: tuple[int, int] = (3, 3), heads: Callable[[Kernel], int] = rank) -> list[str]:
    """Whether the rearranged convolution has the rank of the unfolded kernel, which no fewer heads have."""
    failures = []
    for name, kernel in KERNELS.items():
        needed = int(rearranged(kernel, size).rank())
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


def mixed_failures(*, most: Callable[[Kernel], int] = lambda kernel: rank(kernel) + 1) -> list[str]:
    """Whether U = A W with A positive, columns of sum 1, and at most so many heads."""
    failures = []
    for name, kernel in KERNELS.items():
        heads = mixed_heads(kernel)
        failures += [f"{name}: {reason}" for reason in _not_attention(heads)]
        if heads[0] * heads[1] != exact(kernel):
            failures.append(f"{name}: the heads give {heads[0] * heads[1]}")
        if heads[0].shape[1] > most(kernel):
            failures.append(f"{name}: {heads[0].shape[1]} heads, more than {most(kernel)}")
    return failures


def _not_attention(heads: Heads, *, zeros: bool = False) -> list[str]:
    columns = heads[0].transpose().to_list()
    return [
        f"not a probability distribution with all taps: {column}"
        for column in columns
        if sum(column) != 1 or min(column) < 0 or (min(column) == 0 and not zeros)
    ]


def needed_heads(kernel: Kernel) -> int:
    """rank U if its column space holds a vector >= 0 other than 0, else rank U + 1."""
    return rank(kernel) + (0 if rays(column_basis(kernel), len(kernel)) else 1)


def nonzero_kernels() -> list[Kernel]:
    """Those of the list and random ones, without the zero kernel."""
    return [*(kernel for kernel in KERNELS.values() if any(map(any, kernel))), *random_kernels()]


def limit_failures(*, needed: Callable[[Kernel], int] = needed_heads) -> list[str]:
    """Whether as many heads come nearer and nearer, and a positive y with y U = 0 stands against one fewer.

    The limits of rank U heads would lie in the column space and be >= 0. But y a > 0 for every a >= 0 other than 0, and
    y a = 0 in the column space.
    """
    failures = []
    for kernel in nonzero_kernels():
        near = [heads for eta in ETAS if (heads := near_heads(kernel, eta)) is not None]
        if not near:
            y = [sum(entries) for entries in zip(*rays(complement(kernel), len(kernel)), strict=True)]
            excluded = bool(y) and min(y) > 0 and (exact([y]) * exact(kernel)).is_zero_matrix
            if not excluded or needed(kernel) != rank(kernel) + 1:
                failures.append(f"{kernel}: {needed(kernel)} heads; y = {y}")
            continue
        distances = [max(map(abs, (A * W - exact(kernel)).to_list_flat())) for A, W in near]
        failures += [f"{kernel}: {reason}" for heads in near for reason in _not_attention(heads)]
        if distances[0] * ETAS[1] != distances[1] * ETAS[0]:
            failures.append(f"{kernel}: off by {distances} for eta = {ETAS}")
        if needed(kernel) != near[0][0].shape[1]:
            failures.append(f"{kernel}: {near[0][0].shape[1]} heads come near, not {needed(kernel)}")
    return failures[:5]


def bounded_failures(*, bounded: Callable[[Kernel], bool] | None = None) -> list[str]:
    """Whether rank U heads >= 0 give U itself iff the column space has a basis >= 0.

    If it has none, the vectors >= 0 in it span less than it, whatever they are: all are sums of the rays.
    """
    failures = []
    for kernel in nonzero_kernels():
        found = rays(column_basis(kernel), len(kernel))
        has_basis = dimension(found) == rank(kernel)
        if (has_basis if bounded is None else bounded(kernel)) is not has_basis:
            failures.append(f"{kernel}: the vectors >= 0 span {dimension(found)} of {rank(kernel)} dimensions")
        if has_basis:
            heads = with_values(found, exact(kernel))
            failures += [f"{kernel}: {reason}" for reason in _not_attention(heads, zeros=True)]
            if heads[0].shape[1] != rank(kernel) or heads[0] * heads[1] != exact(kernel):
                failures.append(f"{kernel}: {heads[0].shape[1]} heads >= 0 give {heads[0] * heads[1]}")
    return failures[:5]


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_count()]


def _count() -> Claim:
    names = tuple(f"2x2 taps, 4 pairs of channels: {name}, rank {rank(kernel)}" for name, kernel in KERNELS.items())
    drawn = (*names[:-1], f"{len(list(random_kernels()))} random kernels of 2 to 4 taps, 1 to 3 pairs of channels")
    return Claim(
        name="head-count",
        title="The number of heads that come near is the rank of the unfolded kernel, or one more",
        statement=Formula(
            r"\begin{gathered} N_h^{\min} = \begin{cases} \operatorname{rank} U & \text{if } a \ge 0,\ a \ne 0"
            r" \text{ for some } a \text{ in the column space of } U \\ \operatorname{rank} U + 1 & \text{if not,"
            r" that is, if } y U = 0 \text{ for some } y > 0 \end{cases} \\ U = \bigl(\operatorname{vec}"
            r" W_\Delta\bigr)_\Delta \in \mathbb{R}^{K^2 \times C_{in} C_{out}},\ U \ne 0 \end{gathered}",
            "The smallest number of position-only heads that come as near to the convolution as one likes is rank U if "
            "the column space of U holds a vector >= 0 other than 0, and rank U + 1 if not, that is, if y U = 0 for "
            "some y > 0. U is the kernel unfolded to K^2 rows and C_in C_out columns, and not 0. The values W_h stay "
            "bounded with rank U heads iff the column space has a basis >= 0. Generic kernels with C_in C_out >= K^2 "
            "need exactly K^2 heads; a kernel of one input and one output channel needs 1 if its taps have one sign, "
            "else 2, whatever its size.",
        ),
        assumptions=(
            "Attention does not look at the content: head $h$ computes $A_h X W_h$ with $A_h$ fixed, no entry "
            "negative.",
            "Near means: on one grid of keys, for all images with values in a bounded set.",
            "Some query sees all its taps on pixels that are free (inside the image): this is needed from below; "
            "that $rank U$ heads are needed then holds for any real $A_h$.",
            "Every target is a key: this is needed from above. A head may attend to several taps; its $A_h$ is a "
            "limit of softmaxes of scores that depend on $delta$, not of one quadratic score, unless it is one-hot.",
            "The draft's count, one head for each tap, is for heads that each focus on one pixel: claim `zero-taps`.",
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
            Check("$rank U + 1$ positive heads give the kernel, exactly", Kind.INSTANCES, mixed_failures, cases=names),
            Check(
                "$rank U$ heads come near where a vector $>= 0$ is; where none is, some $y > 0$ has $y U = 0$",
                Kind.INSTANCES,
                limit_failures,
                cases=drawn,
            ),
            Check(
                "$rank U$ heads $>= 0$ give the kernel itself iff there is a basis $>= 0$",
                Kind.INSTANCES,
                bounded_failures,
                cases=drawn,
            ),
        ),
        source="new",
        tests=("proofs.claims.test_sharper.test_heads_that_mix_taps_compute_the_same_convolution",),
        formal=("PositionOnly.eight_position_only_heads_are_too_few",),
    )


def _count_steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"\sum_h A_h \otimes W_h = \sum_\Delta P_\Delta \otimes W_\Delta",
                "sum_h A_h (x) W_h = sum_Delta P_Delta (x) W_Delta",
            ),
            "Both layers are linear in $X$; they agree for all $X$ iff these operators do, and come near iff these "
            "do. $P_Delta[q, k] = [k = q + Delta]$.",
        ),
        Step(
            Formula(
                r"\operatorname{rank} \sum_h \operatorname{vec}(A_h) \operatorname{vec}(W_h)^\top \le N_h",
                "rank of sum_h vec(A_h) vec(W_h)^T <= N_h",
            ),
            "Rearrange the operators to matrices, (query, key) pairs by channel pairs: a sum of $N_h$ matrices of "
            "rank 1. A limit of such sums has no larger rank.",
        ),
        Step(
            Formula(
                r"\operatorname{rank} \sum_\Delta \operatorname{vec}(P_\Delta) \operatorname{vec}(W_\Delta)^\top"
                r" = \operatorname{rank}(P\, U) = \operatorname{rank} U",
                "rank of sum_Delta vec(P_Delta) vec(W_Delta)^T = rank(P U) = rank U",
            ),
            "The columns $vec(P_Delta)$ of $P$ have disjoint supports, none empty: $P$ is injective. So $N_h$ is at "
            "least $rank U$.",
        ),
        Step(
            Formula(
                r"C_{in} C_{out} \ge K^2 \implies \operatorname{rank} U = K^2 \text{ but on a null set}",
                "C_in C_out >= K^2 implies rank U = K^2 for all kernels but a null set",
            ),
            "A minor of side $K^2$ is a polynomial that is 1 where the slices are different unit matrices, hence not "
            "zero. $K^2$ one-hot heads suffice (claim `head-assembly`). With $g$ groups $C_in C_out / g$ counts.",
        ),
        Step(
            Formula(
                r"U = A W,\quad A \in \mathbb{R}^{K^2 \times (r + 1)} \text{ positive},\ 1^\top A = 1^\top",
                "U = A W with A (K^2 x (r + 1)) positive and columns of sum 1, r = rank U",
            ),
            "Columns of $A$: the all-ones vector and $1 + epsilon b$ for a basis $b$ of $U$'s column space, scaled. "
            "They span it. Head $h$ attends to tap $Delta$ with probability $A[Delta, h]$: "
            "$sum_h A_h (x) W_h = sum_Delta P_Delta (x) W_Delta$. So $rank U + 1$ heads are always enough.",
        ),
        Step(
            Formula(
                r"a \ge 0:\quad a w_1^\top + \sum_{i \ge 2} b_i w_i^\top = U,\quad (a + \eta 1) w_1^\top + \sum_{i"
                r" \ge 2} b_i w_i^\top = U + \eta 1 w_1^\top",
                "a >= 0: a w_1^T + sum_{i >= 2} b_i w_i^T = U and (a + eta 1) w_1^T + sum_{i >= 2} b_i w_i^T = U + eta "
                "1 w_1^T",
            ),
            "Complete $a$ to a basis $a, b_2, ..., b_r$ of the column space. The heads $a + eta 1$ and "
            "$a + eta 1 + epsilon b_i$, scaled, are positive for small $epsilon$ and span "
            "$a + eta 1, b_2, ..., b_r$: $rank U$ heads give a kernel that is $eta 1 w_1^T$ off, for every $eta > 0$.",
        ),
        Step(
            Formula(
                r"\operatorname{span}(\operatorname{vec} A_h^{(m)}) \to P \cdot \text{column space of } U,\quad"
                r" \frac{A_h^{(m)}}{|A_h^{(m)}|} \to P a,\ a \ge 0,\ a \ne 0",
                "span(vec A_h^(m)) -> P times the column space of U, A_h^(m) / |A_h^(m)| -> P a with a >= 0, a != 0",
            ),
            "Conversely, let $rank U$ heads come near, in steps $m$; count free keys only. Any limit of their spans "
            "contains the columns of $P U$ and has no larger dimension, so it is their span. Directions of the heads "
            "have limits, too (none is 0, or the others would be too few), in this span and $>= 0$. The $P_Delta$ "
            "have disjoint supports, so $a >= 0$.",
        ),
        Step(
            Formula(
                r"\nexists a \ge 0,\ a \ne 0 \iff \exists y > 0:\ y U = 0",
                "no a >= 0 other than 0 in the column space iff y U = 0 for some y > 0",
            ),
            "Stiemke's lemma. For one channel $U$ is one column: $a$ or $-a$ is $>= 0$ iff the taps have one sign.",
        ),
        Step(
            Formula(
                r"W_h^{(m)} \text{ bounded} \implies A_h^{(m)} \to A_h,\ W_h^{(m)} \to W_h \text{ (some }"
                r" m\text{)},\quad \sum_h A_h \otimes W_h = \sum_\Delta P_\Delta \otimes W_\Delta",
                "W_h^(m) bounded implies A_h^(m) -> A_h and W_h^(m) -> W_h for some of the m, and sum_h A_h (x) W_h = "
                "sum_Delta P_Delta (x) W_Delta",
            ),
            "With $rank U$ terms the $vec(A_h)$ are then a basis of $P$ times the column space, and $>= 0$. If it "
            "has such a basis, its vectors are heads. Else the values grow without bound as the heads come nearer.",
        ),
    )
