"""Errata about the convolution: the shifts of an even kernel, and what lies outside the image."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Checks, Status
from ..common.small_convolutions import Case, Pixel
from ..theorem.assembly import assembly_failures, padded_keys
from .erratum import erratum, readings

KERNEL_SIZE = sympy.Symbol("K", integer=True, positive=True)
BORDER = Case((3, 3), pads=(1, 1, 1, 1), size=(2, 3))

IndexSet = Callable[[Expr], tuple[Expr, Expr]]
Keys = Callable[[Case], list[Pixel]]


def centred(K: Expr) -> tuple[Expr, Expr]:
    """-floor((K - 1) / 2), ..., floor(K / 2)."""
    return -sympy.floor((K - 1) / 2), sympy.floor(K / 2)


def index_set_failures(ends: IndexSet) -> list[str]:
    """Whether first, ..., last are K integers, 0 among them, for odd and for even K."""
    m = sympy.Symbol("m", integer=True, nonnegative=True)
    failures = []
    for K in (2 * m + 1, 2 * m + 2):
        first, last = ends(K)
        failures += unequal(last - first + 1, K, f"number of taps for K = {K}")
        if not (sympy.simplify(-first).is_nonnegative and sympy.simplify(last).is_nonnegative):
            failures.append(f"K = {K}: 0 is not in {{{first}, ..., {last}}}")
    return failures


@erratum(
    status=Status.ALGEBRA,
    scope=r"Kernels of size $K \times K$; the examples have $K = 3$.",
    source="the published version, section 2; the article, section Convolutional Layer",
)
def errata_even_kernels(
    *, printed: IndexSet = lambda K: (-sympy.floor(K / 2), sympy.floor(K / 2)), corrected: IndexSet = centred
) -> Checks:
    r"""Shifts of an even kernel.

    For $\Delta_1, \Delta_2 = {=printed(KERNEL_SIZE)[0]}, \dots, {=printed(KERNEL_SIZE)[1]}$ read
    $\Delta_1, \Delta_2 = {=corrected(KERNEL_SIZE)[0]}, \dots, {=corrected(KERNEL_SIZE)[1]}$. These agree for odd $K$;
    for even $K$ the first are $(K + 1)^2$ shifts, not $K^2$. The query sits under the middle tap (`head-assembly`).
    """
    yield from readings(index_set_failures, printed, corrected)


def key_failures(keys: Keys) -> list[str]:
    """Whether one-hot attention over these pixels is the convolution at the border."""
    return assembly_failures([BORDER], keys=keys)


def image_keys(case: Case) -> list[Pixel]:
    """The pixels of the image itself, in coordinates of the padded image."""
    return [(row + case.pads[0], column + case.pads[2]) for row, column in product(*map(range, case.size))]


@erratum(
    status=Status.INSTANCES,
    scope="Attention is over the pixels of $X$, and $Y_{i,j}$ is meant at the border, too.",
    source="draft, section 2.1, eq. (1); the article and the talk do not say it either",
)
def errata_border(*, printed: Keys = image_keys, corrected: Keys = padded_keys) -> Checks:
    r"""The pixels outside the image are not defined.

    $Y_{i,j,:} = b + \sum_{m,n} W_{m,n,:,:} X_{i+m,j+n,:}$ does not say what $X$ is outside the image. If the target is
    no key, the softmax tends to the nearest pixels instead of to nothing. The keys are to be all pixels of the padded
    input, whose zeros have the value 0 (`head-assembly`); the published version has a remark on padding.
    """
    size = "{}x{} taps, {}x{} pixels".format(*BORDER.kernel, *BORDER.size)
    yield from readings(key_failures, printed, corrected, size)
