"""How many heads come arbitrarily near a convolution, if attention looks at positions only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from sympy import QQ

from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.small import points
from .head_dimension import exact, rank
from .head_mixtures import (
    KERNELS,
    Heads,
    Kernel,
    column_basis,
    complement,
    dimension,
    mixed_heads,
    near_heads,
    random_kernels,
    rays,
    with_values,
)

SHAPE = (2, 2)  # taps
ETAS = (QQ(1, 10), QQ(1, 10**6))


def shifts(size: tuple[int, int], shape: tuple[int, int]) -> list[list[int]]:
    """P_Delta for every tap, flattened over (query, key) pairs; queries are those whose targets are all keys."""
    queries = points((size[0] - shape[0] + 1, size[1] - shape[1] + 1))
    pairs = list(product(queries, points(size)))
    return [[int(k == (q[0] + m, q[1] + n)) for q, k in pairs] for m, n in points(shape)]


def rank_failures(*, size: tuple[int, int] = (3, 3), heads: Callable[[Kernel], int] = rank) -> Failures:
    """Fails unless P U has the rank of the unfolded kernel U, which no fewer heads have."""
    P = exact(shifts(size, SHAPE)).transpose()
    ranks = {name: (int((P * exact(kernel)).rank()), heads(kernel)) for name, kernel in KERNELS.items()}
    return [f"{name}: P U has rank {found}, not {wanted}" for name, (found, wanted) in ranks.items() if found != wanted]


def independence_failures(
    sizes: Iterable[tuple[int, int]] = ((2, 2), (2, 3), (4, 3)), *, shape: tuple[int, int] = SHAPE
) -> Failures:
    """Fails unless the shift matrices of the taps are linearly independent, as soon as there is one query."""
    ranks = {size: rank(shifts(size, shape)) for size in sizes}
    taps = shape[0] * shape[1]
    return [f"{size}: {taps} shifts have rank {found}" for size, found in ranks.items() if found != taps]


def mixed_failures(*, most: Callable[[Kernel], int] = lambda kernel: rank(kernel) + 1) -> Failures:
    """Fails unless U = A W with A positive, columns of sum 1, and at most ``most(kernel)`` heads."""
    for name, kernel in KERNELS.items():
        heads = mixed_heads(kernel)
        yield from [f"{name}: {reason}" for reason in _not_attention(heads)]
        if heads[0] * heads[1] != exact(kernel):
            yield f"{name}: the heads give {heads[0] * heads[1]}"
        if heads[0].shape[1] > most(kernel):
            yield f"{name}: {heads[0].shape[1]} heads, more than {most(kernel)}"


def _not_attention(heads: Heads, *, zeros: bool = False) -> Failures:
    columns = heads[0].transpose().to_list()
    refused = [c for c in columns if sum(c) != 1 or min(c) < 0 or (min(c) == 0 and not zeros)]
    return [f"not a probability distribution with all taps: {column}" for column in refused]


def needed_heads(kernel: Kernel) -> int:
    """rank U if its column space holds a vector >= 0 other than 0, else rank U + 1."""
    return rank(kernel) + (0 if rays(column_basis(kernel), len(kernel)) else 1)


def nonzero_kernels() -> list[Kernel]:
    """Those of the list and random ones, without the zero kernel."""
    return [*(kernel for kernel in KERNELS.values() if any(map(any, kernel))), *random_kernels()]


def limit_failures(*, needed: Callable[[Kernel], int] = needed_heads) -> Failures:
    """Fails unless as many heads come nearer and nearer, and a positive y with y U = 0 stands against one fewer.

    The limits of rank U heads would lie in the column space and be >= 0. But y a > 0 for every a >= 0 other than 0, and
    y a = 0 in the column space.
    """
    for kernel in nonzero_kernels():
        near = [heads for eta in ETAS if (heads := near_heads(kernel, eta)) is not None]
        if not near:
            y = [sum(entries) for entries in zip(*rays(complement(kernel), len(kernel)), strict=True)]
            excluded = bool(y) and min(y) > 0 and (exact([y]) * exact(kernel)).is_zero_matrix
            if not excluded or needed(kernel) != rank(kernel) + 1:
                yield f"{kernel}: {needed(kernel)} heads; y = {y}"
            continue
        distances = [max(map(abs, (A * W - exact(kernel)).to_list_flat())) for A, W in near]
        yield from [f"{kernel}: {reason}" for heads in near for reason in _not_attention(heads)]
        if distances[0] * ETAS[1] != distances[1] * ETAS[0]:
            yield f"{kernel}: off by {distances} for eta = {ETAS}"
        if needed(kernel) != near[0][0].shape[1]:
            yield f"{kernel}: {near[0][0].shape[1]} heads come near, not {needed(kernel)}"


def bounded_failures(*, bounded: Callable[[Kernel], bool] | None = None) -> Failures:
    """Fails unless rank U heads >= 0 give U itself iff the column space has a basis >= 0.

    If it has none, the vectors >= 0 in it span less than it, whatever they are: all are sums of the rays.
    """
    for kernel in nonzero_kernels():
        found = rays(column_basis(kernel), len(kernel))
        has_basis = dimension(found) == rank(kernel)
        if (has_basis if bounded is None else bounded(kernel)) is not has_basis:
            yield f"{kernel}: the vectors >= 0 span {dimension(found)} of {rank(kernel)} dimensions"
        if has_basis:
            heads = with_values(found, exact(kernel))
            yield from [f"{kernel}: {reason}" for reason in _not_attention(heads, zeros=True)]
            if heads[0].shape[1] != rank(kernel) or heads[0] * heads[1] != exact(kernel):
                yield f"{kernel}: {heads[0].shape[1]} heads >= 0 give {heads[0] * heads[1]}"


KERNELS_OF_2X2 = f"{len(KERNELS)} kernels of 2x2 taps and 4 pairs of channels"
ALL_KERNELS = f"{len(nonzero_kernels())} kernels of 2 to 4 taps and 1 to 4 pairs of channels"


@claim(
    status=Status.INSTANCES,
    scope=r"Heads whose attention ignores the content: head $h$ computes $A_h X W_h$ with a fixed $A_h \ge 0$, on one "
    r"grid of keys. $A_h$ is any limit of softmaxes, so a head may attend to several taps. $U \ne 0$. *Near* "
    r"means: for all images with values in a bounded set. From below, some query must read all its taps inside "
    r"the image; from above, every target must be a key. The draft's count, one head for each tap, is for heads "
    r"that each focus on one pixel; a tap that is zero needs none. Coq has one kernel only: with at most eight such "
    r"heads every layer is off by $1/2$ or more, on some image with values in $[-1, 1]$, from a 3x3 convolution whose "
    r"nine taps read one channel each.",
    coq=("PositionOnly.v: eight_position_only_heads_are_too_few",),
    tests=("proofs/claims/test_sharper.py",),
)
def head_count() -> Checks:
    r"""The number of heads that come near is the rank of the unfolded kernel, or one more.

    Let $U = (\operatorname{vec} W_\Delta)_\Delta \in \mathbb{R}^{K^2 \times C_{in} C_{out}}$ be the unfolded kernel
    and $S$ its column space. The smallest number of heads that come as near to the convolution as one likes is

    ```math
    N_h^{\min} = \begin{cases} \operatorname{rank} U & \text{if } S \text{ holds a vector } a \ge 0,\ a \ne 0 , \\
    \operatorname{rank} U + 1 & \text{if not, that is, if } y U = 0 \text{ for some } y > 0 . \end{cases}
    ```

    With $\operatorname{rank} U$ heads that come near, the values $W_h$ can stay bounded if and only if $S$ has a basis
    of vectors $\ge 0$. Nearly all kernels with $C_{in} C_{out} \ge K^2$ need $K^2$ heads. A kernel of one input and
    one output channel needs one head if its taps have one sign, else two, whatever its size.

    **Proof.** *The rank.* Without their bias, layer and convolution are linear in $X$: they are the operators
    $\sum_h A_h \otimes W_h$ and $\sum_\Delta P_\Delta \otimes W_\Delta$ with the shifts
    $P_\Delta[q, k] = [k = q + \Delta]$. As matrices of pairs (query, key) by pairs of channels,

    ```math
    \sum_h \operatorname{vec}(A_h) \operatorname{vec}(W_h)^\top
    \quad\text{and}\quad \sum_\Delta \operatorname{vec}(P_\Delta) \operatorname{vec}(W_\Delta)^\top = P\, U .
    ```

    The first has at most rank $N_h$, and so has a limit of such matrices. The columns $\operatorname{vec}(P_\Delta)$
    of $P$ have disjoint supports, none of them empty, so the second has the rank of $U$. Hence
    $N_h \ge \operatorname{rank} U = r$, for any real $A_h$. If $C_{in} C_{out} \ge K^2$, a minor of side $K^2$ is a
    polynomial in the kernel, and 1 where the slices are different unit matrices, so it vanishes on a null set only.
    With $g$ groups, $C_{in} C_{out} / g$ counts.

    *One more is enough.* Let $b_1, \dots, b_r$ be a basis of $S$. The vectors $1$ and $1 + \varepsilon b_i$ are
    positive for small $\varepsilon$, and their span contains $S$; scaled to sum 1, they are the columns of a matrix
    $A$ with $U = A W$. The head that attends to tap $\Delta$ with probability $A[\Delta, h]$, for each $h$, gives the
    convolution.

    *The rank is enough if $S$ holds such an $a$.* Complete it to a basis:
    $U = a w_1^\top + \sum_{i \ge 2} b_i w_i^\top$. For $\eta > 0$ and small $\varepsilon$ the vectors $a + \eta 1$ and
    $a + \eta 1 + \varepsilon b_i$ are positive, and they span $a + \eta 1, b_2, \dots, b_r$. Scaled, they are $r$
    heads that give $(a + \eta 1) w_1^\top + \sum_{i \ge 2} b_i w_i^\top = U + \eta 1 w_1^\top$.

    *It is not if $S$ holds none.* Let $r$ heads come near, step by step, and count only keys inside the image. For a
    subsequence the spans of their $\operatorname{vec} A_h$ have a limit, which contains the columns of $P U$ and has
    no larger dimension: it is $P S$. No $A_h$ is 0 in the end, or the others would be too few, so the directions
    $A_h / |A_h|$ have limits, too. These are $\ge 0$ and in $P S$; since the supports are disjoint, they are $P a$
    with $a \ge 0$, $a \ne 0$ in $S$, a contradiction. That there is no such $a$ if and only if $y U = 0$ for some
    $y > 0$ is Stiemke's lemma. For one channel $U$ is one column.

    *Bounded values.* If the $W_h$ stay bounded, they and the $A_h$ have limits, for a subsequence, with
    $\sum_h A_h \otimes W_h = \sum_\Delta P_\Delta \otimes W_\Delta$. With $r$ terms the $\operatorname{vec} A_h$ are
    then a basis of $P S$, and $\ge 0$. Conversely, the vectors of such a basis are heads. $\square$
    """
    yield Check("the shifts of the taps are independent", independence_failures, "2x2 taps on 2x2, 2x3 and 4x3 keys")
    yield Check("$P U$ has the rank of $U$", rank_failures, KERNELS_OF_2X2)
    yield Check("$r + 1$ positive heads give the kernel", mixed_failures, KERNELS_OF_2X2)
    yield Check("$r$ heads come near if there is an $a$; if not, there is a $y$", limit_failures, ALL_KERNELS)
    yield Check("$r$ heads $\\ge 0$ give the kernel iff there is a basis $\\ge 0$", bounded_failures, ALL_KERNELS)
