"""How large a head must be: D_h >= rank W_Delta is what the values need, and all they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

import sympy
from sympy import QQ, ZZ
from sympy.polys.matrices import DomainMatrix
from sympy.polys.rings import ring

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ..common.small_convolutions import Element

SIZES = (1, 2, 3)
SLICES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((0, 0), (0, 0)),
    ((1, 2, 3), (2, 4, 6)),
    ((1, 2), (3, 4), (5, 6)),
    ((2, -1, 0, 1), (4, -2, 1, 3), (6, -3, 1, 4)),  # the third row is the sum of the others
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
)

Matrix = Sequence[Sequence[int]]


def exact(matrix: Matrix) -> DomainMatrix:
    """The matrix over the rational numbers."""
    return DomainMatrix([[QQ(entry) for entry in row] for row in matrix], (len(matrix), len(matrix[0])), QQ)


def rank(matrix: Matrix) -> int:
    """The rank, by exact elimination."""
    return int(exact(matrix).rank())


def rank_factors(matrix: Matrix) -> tuple[DomainMatrix, DomainMatrix]:
    """W = C F: the pivot columns of W, and the non-zero rows of its reduced echelon form."""
    reduced, pivots = exact(matrix).rref()
    columns = exact(matrix).extract(list(range(len(matrix))), list(pivots))
    return columns, reduced.extract(list(range(len(pivots))), list(range(len(matrix[0]))))


def factor_failures(slices: Iterable[Matrix] = SLICES, *, head_dim: Callable[[Matrix], int] = rank) -> list[str]:
    """Whether W = W_val W_out with an inner dimension of head_dim(W), at most min of W's sides."""
    failures = []
    for matrix in slices:
        values, outputs = rank_factors(matrix)
        inner = values.shape[1]
        if values * outputs != exact(matrix):
            failures.append(f"{matrix}: the factors give {values * outputs}")
        if inner != head_dim(matrix) or inner > min(len(matrix), len(matrix[0])):
            failures.append(f"{matrix}: the factors have inner dimension {inner}, not {head_dim(matrix)}")
    return failures


def minor_failures(sizes: Iterable[int] = SIZES, *, excess: int = 1) -> list[str]:
    """Whether every minor of side r + excess of a product with inner dimension r is 0, with a symbol for each entry."""
    failures = []
    for r in sizes:
        side = r + excess
        names = [f"a{i}_{k}" for i in range(side) for k in range(r)] + [
            f"b{k}_{j}" for k in range(r) for j in range(side)
        ]
        polynomials, *symbols = ring(names, ZZ)
        left = [symbols[i * r : (i + 1) * r] for i in range(side)]
        right = [symbols[side * r + k * side : side * r + (k + 1) * side] for k in range(r)]
        entries = [
            [sum((left[i][k] * right[k][j] for k in range(r)), polynomials.zero) for j in range(side)]
            for i in range(side)
        ]
        if determinant(entries, polynomials.one) != 0:
            failures.append(f"the minor of side {side} of a product with inner dimension {r} is not 0")
    return failures


def determinant(entries: Sequence[Sequence[Element]], one: Element) -> Element:
    """The determinant of a square matrix, as a sum over permutations."""
    total = one - one
    for order in permutations(range(len(entries))):
        term = one * sympy.LeviCivita(*order) if len(order) > 1 else one
        for row, column in enumerate(order):
            term = term * entries[row][column]
        total += term
    return total


def claims() -> list[Claim]:
    """The claims of this file."""
    return [
        Claim(
            name="head-dimension",
            title="The head dimension is the rank of the kernel's slices",
            statement=Formula(
                r"W_\Delta = W_{\mathrm{val}} W_{\mathrm{out}} \text{ with } D_h \text{ inner columns} \iff D_h \ge"
                r" \operatorname{rank} W_\Delta",
                "W_Delta = W_val W_out with W_val (C_in x D_h) and W_out (D_h x C_out) is solvable iff D_h >= rank "
                "W_Delta. "
                "So D_h >= max over taps of rank W_Delta, hence D_h = min(C_in, C_out), suffices, and is necessary for "
                "one-hot heads, one a tap. Several heads at a tap need D_h times their number >= rank W_Delta.",
            ),
            assumptions=(
                "For the necessity: heads are one-hot, one at each tap, and one query sees only pixels that are free.",
            ),
            steps=_steps(),
            checks=(
                Check(
                    "rank factorisations multiply back to $W$, in exact arithmetic",
                    Kind.INSTANCES,
                    factor_failures,
                    cases=tuple(f"{len(m)}x{len(m[0])} of rank {rank(m)}" for m in SLICES),
                ),
                Check(
                    "all minors of side $r + 1$ of a product with inner dimension $r$ are 0, for symbolic entries",
                    Kind.INSTANCES,
                    minor_failures,
                    cases=tuple(f"$r = {r}$" for r in SIZES),
                ),
            ),
            source="new; sharper than the theorem's $D_h$, $D_out$",
            tests=("proofs.claims.test_sharper.test_split_values_have_the_smallest_head_dimension",),
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"W = C F,\quad C = \text{pivot columns},\ F = \text{non-zero rows of the reduced echelon form}",
                "W = C F, C the pivot columns of W, F the non-zero rows of its reduced echelon form",
            ),
            "Sufficient: inner dimension $rank W$, padded with zeros up to $D_h$. $rank W <= min(C_in, C_out)$.",
        ),
        Step(
            Formula(r"\operatorname{rank}(W_{\mathrm{val}} W_{\mathrm{out}}) \le D_h", "rank(W_val W_out) <= D_h"),
            "Extend $W_val$ by a zero column and $W_out$ by a zero row: every minor of side $D_h + 1$ is a product "
            "of determinants, one of a matrix with a zero column.",
        ),
        Step(
            Formula(
                r"\sum_{h:\, \Delta_h = \Delta} W_{\mathrm{val}}^{(h)} W_{\mathrm{out}}^{(h)} = W_\Delta"
                r" \text{ for every tap } \Delta",
                "sum over the heads h at Delta of W_val^(h) W_out^(h) = W_Delta, for every tap Delta",
            ),
            "Necessary: set all pixels to 0 but the target of one tap. Heads at other taps read 0. With one head a tap "
            "the sum has one term; with several, ranks add up at most.",
        ),
    )
