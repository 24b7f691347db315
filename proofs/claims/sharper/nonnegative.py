"""Non-negative vectors of a subspace, or the positive vector at right angles to it that rules them out.

Stiemke's alternative, decided in fractions: a subspace of R^n holds a vector >= 0 other than 0, or its orthogonal
complement holds one that is positive everywhere; never both.
"""

from __future__ import annotations

from collections.abc import Sequence
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
