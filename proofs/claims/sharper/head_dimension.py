"""How large a head must be: D_h >= rank W_Delta is what the values need, and all they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import sympy
from sympy import QQ, ZZ
from sympy.polys.matrices import DomainMatrix
from sympy.polys.rings import ring

from ...prover.claim import Check, Checks, Failures, Status, claim

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


def factor_failures(slices: Iterable[Matrix] = SLICES, *, head_dim: Callable[[Matrix], int] = rank) -> Failures:
    """Fails unless W = W_val W_out with an inner dimension of head_dim(W), at most min of W's sides."""
    for matrix in slices:
        values, outputs = rank_factors(matrix)
        inner = values.shape[1]
        if values * outputs != exact(matrix):
            yield f"{matrix}: the factors give {values * outputs}"
        if inner != head_dim(matrix) or inner > min(len(matrix), len(matrix[0])):
            yield f"{matrix}: the factors have inner dimension {inner}, not {head_dim(matrix)}"


def minor_failures(sizes: Iterable[int] = SIZES, *, excess: int = 1) -> Failures:
    """Fails unless every minor of side r + excess of a product with inner dimension r is 0, for symbolic entries."""
    for r in sizes:
        side = r + excess
        polynomials, *symbols = ring(sympy.symbols(f"a:{2 * r * side}"), ZZ)
        left, right = symbols[: r * side], symbols[r * side :]
        A = DomainMatrix.from_list_flat(left, (side, r), polynomials.to_domain())
        B = DomainMatrix.from_list_flat(right, (r, side), polynomials.to_domain())
        if (A * B).det() != 0:
            yield f"the minor of side {side} of a product with inner dimension {r} is not 0"


@claim(
    status=Status.INSTANCES,
    scope=r"Any real matrix $W_\Delta$, here of size $C_{in} \times C_{out}$. What is said of a layer is for one-hot "
    r"heads and for images in which some query reads all its taps inside the image. Exact arithmetic.",
    source="new; sharper than the theorem's $D_h$, $D_{out}$",
    tests=("proofs/claims/test_sharper.py",),
)
def head_dimension() -> Checks:
    r"""The head dimension is the rank of the kernel's slices.

    There are $W_{val} \in \mathbb{R}^{C_{in} \times D_h}$ and $W_{out} \in \mathbb{R}^{D_h \times C_{out}}$ with
    $W_\Delta = W_{val} W_{out}$ if and only if $D_h \ge \operatorname{rank} W_\Delta$. So with one head at each tap
    the layer of `head-assembly` needs exactly $D_h = \max_\Delta \operatorname{rank} W_\Delta$, which is at most
    $\min(C_{in}, C_{out})$. If several heads sit at a tap, their number times $D_h$ must be at least its rank.

    **Proof.** *Sufficient:* $W = C F$, where $C$ are the pivot columns of $W$ and $F$ the non-zero rows of its reduced
    echelon form, with inner dimension $\operatorname{rank} W$; fill up with zeros to $D_h$. *Necessary:* a product of
    inner dimension $D_h$ has no larger rank. For if $W_{val}$ gets a zero column and $W_{out}$ a zero row, every minor
    of side $D_h + 1$ is a product of two determinants, one of them of a matrix with a zero column. In a layer, set all
    pixels to 0 but the target of one tap: heads at other taps read 0, so

    ```math
    \sum_{h:\ \Delta_h = \Delta} W_{val}^{(h)} W_{out}^{(h)} = W_\Delta ,
    ```

    a sum with one term for each head at the tap, whose ranks add up at most. $\square$
    """
    yield Check(
        "rank factorisations multiply back to $W$, in exact arithmetic",
        factor_failures,
        f"{len(SLICES)} matrices, of rank {', '.join(str(rank(matrix)) for matrix in SLICES)}",
    )
    yield Check(
        "all minors of side $r + 1$ of a product with inner dimension $r$ are 0, for symbolic entries",
        minor_failures,
        "$r = 1, 2, 3$",
    )
