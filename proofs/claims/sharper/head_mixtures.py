"""Heads that mix taps: a kernel U as attention over the taps times values, exactly or as nearly as one likes.

U is unfolded: a row for each tap, a column for each pair of channels. U = A W with columns of A that are probability
distributions over the taps means that heads with these distributions and the values W compute the convolution.

Which heads there are is decided in fractions by Stiemke's alternative: a subspace of R^n holds a vector >= 0 other than
0, or its orthogonal complement holds one that is positive everywhere; never both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from .head_dimension import Matrix, exact, rank

Vector = list[Any]  # of fractions


def column_basis(matrix: Matrix) -> list[Vector]:
    """A basis of the column space."""
    columns = exact(matrix)
    return [columns.extract(list(range(len(matrix))), [pivot]).to_list_flat() for pivot in columns.rref()[1]]


def complement(matrix: Matrix) -> list[Vector]:
    """A basis of what is orthogonal to all columns."""
    basis: list[Vector] = exact(matrix).transpose().nullspace().to_list()
    return basis


def rays(basis: Sequence[Vector], size: int) -> list[Vector]:
    """The extreme rays of the cone of all vectors >= 0 in a subspace: they span it, and are found by their zeros.

    An extreme ray is the only vector of the subspace, up to a factor, that vanishes where it does. So some r - 1 of its
    zeros, r the dimension of the subspace, determine it.
    """
    found: list[Vector] = []
    for zeros in combinations(range(size), max(len(basis) - 1, 0)) if basis else ():
        conditions = DomainMatrix([[b[i] for b in basis] for i in zeros], (len(zeros), len(basis)), QQ)
        solutions = conditions.nullspace().to_list() if zeros else [[QQ(1)]]
        if len(solutions) != 1:
            continue
        ray = [sum(c * b[i] for c, b in zip(solutions[0], basis, strict=True)) for i in range(size)]
        sign = -1 if sum(ray) < 0 else 1
        ray = [sign * entry for entry in ray]
        if min(ray) >= 0 and any(ray):
            found.append([entry / sum(ray) for entry in ray])
    return [ray for number, ray in enumerate(found) if ray not in found[:number]]


def dimension(vectors: Sequence[Vector]) -> int:
    """Dimension of the span of some vectors."""
    return rank(vectors) if vectors else 0


Kernel = Matrix
Heads = tuple[DomainMatrix, DomainMatrix]  # A, taps x heads, and W, heads x pairs of channels

KERNELS: dict[str, Kernel] = {  # 2x2 taps, 4 pairs of channels
    "generic": ((1, 2, 0, 1), (0, 1, 3, 1), (2, 0, 1, 1), (1, 1, 1, 5)),
    "unit matrices": tuple(tuple(int(i == j) for j in range(4)) for i in range(4)),
    "rank 2": ((1, 0, 2, 1), (0, 1, 1, 1), (1, 1, 3, 2), (2, -1, 3, 1)),
    "one channel": ((1, 0, 0, 0), (-2, 0, 0, 0), (3, 0, 0, 0), (-4, 0, 0, 0)),
    "a filter $>= 0$ beside one of both signs": ((1, 0, 0, 0), (0, 1, 0, 0), (0, -1, 0, 0), (0, 0, 0, 0)),
    "two zero taps": ((0, 0, 0, 0), (1, 2, 3, 4), (0, 0, 0, 0), (4, 3, 2, 1)),
    "zero": ((0, 0, 0, 0),) * 4,
}


def random_kernels(count: int = 40) -> Iterator[Kernel]:
    """Kernels of 2 to 4 taps and 1 to 3 pairs of channels, none of them zero."""
    draw = random.Random(11)
    for _ in range(count):
        taps, pairs = draw.randint(2, 4), draw.randint(1, 3)
        kernel = tuple(tuple(draw.choice((-2, -1, 0, 1, 2)) for _ in range(pairs)) for _ in range(taps))
        if any(map(any, kernel)):
            yield kernel


def with_values(distributions: Sequence[Vector], product: DomainMatrix) -> Heads:
    """Independent ones of the vectors, scaled to sum 1, and what they are to be multiplied with for this product."""
    attention = _columns([[entry / sum(row) for entry in row] for row in distributions])
    attention = attention.extract(list(range(attention.shape[0])), list(attention.rref()[1]))
    return attention, _solved(attention, product)


def mixed_heads(kernel: Kernel) -> Heads:
    """The kernel with positive heads: 1 and 1 + epsilon b for a basis b of the column space, so rank U + 1 at most."""
    ones = [QQ(1)] * len(kernel)
    return with_values([ones, *(_nudged(ones, b) for b in column_basis(kernel))], exact(kernel))


def near_heads(kernel: Kernel, eta: Any) -> Heads | None:
    """rank U positive heads for a kernel that is eta w off, w fixed; None if no vector >= 0 is in the column space.

    With such an a, and b_2, ..., b_r that complete it to a basis, U = a w_1 + b_2 w_2 + ... + b_r w_r. The heads are
    a + eta 1, which is positive, and a + eta 1 + epsilon b_i; they give U + eta 1 w_1.
    """
    taps, basis, found = len(kernel), column_basis(kernel), rays(column_basis(kernel), len(kernel))
    if not found:
        return None
    candidates = _columns([found[0], *basis])
    a, *others = (candidates.extract(list(range(taps)), [pivot]).to_list_flat() for pivot in candidates.rref()[1])
    raised = [entry + eta for entry in a]
    moved = _columns([raised, *others]) * _solved(_columns([a, *others]), exact(kernel))
    return with_values([raised, *(_nudged(raised, b) for b in others)], moved)


def _columns(vectors: Sequence[Vector]) -> DomainMatrix:
    return DomainMatrix(list(vectors), (len(vectors), len(vectors[0])), QQ).transpose()


def _solved(columns: DomainMatrix, product: DomainMatrix) -> DomainMatrix:
    """W with columns W = product, for independent columns that span those of the product."""
    return (columns.transpose() * columns).inv() * columns.transpose() * product


def _nudged(positive: Vector, b: Vector) -> Vector:
    """A positive vector plus so little of b that it stays positive."""
    epsilon = min(positive) / (1 + max(map(abs, b)))
    return [entry + epsilon * change for entry, change in zip(positive, b, strict=True)]
