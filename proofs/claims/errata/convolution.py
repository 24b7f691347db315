"""Errata about the convolution: the draft's section 2.1 and the article's counterpart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Claim, Formula, Kind
from ..common.small_convolutions import Case, Pixel
from ..theorem.assembly import assembly_failures, padded_keys
from .erratum import Erratum, Finding, Source, claim_of

BORDER = Case((3, 3), pads=(1, 1, 1, 1), size=(2, 3))

IndexSet = Callable[[Expr], tuple[Expr, Expr]]


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


def key_failures(keys: Callable[[Case], list[Pixel]]) -> list[str]:
    """Whether one-hot attention over these pixels is the convolution at the border."""
    return assembly_failures([BORDER], keys=keys)


def image_keys(case: Case) -> list[Pixel]:
    """The pixels of the image itself, in coordinates of the padded image."""
    return [(row + case.pads[0], column + case.pads[2]) for row, column in product(*map(range, case.size))]


def claims() -> list[Claim]:
    """The entries, as claims."""
    return [claim_of(erratum) for erratum in entries()]


def entries() -> list[Erratum]:
    """The entries."""
    return [_index_set(), _even(), _border()]


def _index_set() -> Erratum:
    return Erratum(
        name="index-set",
        title="The taps of eq. (1)",
        source=Source.DRAFT,
        place="section 2.1, eq. (1)",
        quotation=Formula(
            r"(m, n) \in \{\lfloor (K - 1)/2 \rfloor, \dots, \lfloor K/2 \rfloor\}^2",
            "(m, n) in {floor((K - 1)/2), ..., floor(K/2)}^2",
        ),
        premise="$K$ is the kernel size, so eq. (1) sums over $K x K$ taps.",
        finding=Finding.MISPRINT,
        corrected=Formula(
            r"(m, n) \in \{-\lfloor (K - 1)/2 \rfloor, \dots, \lfloor K/2 \rfloor\}^2",
            "(m, n) in {-floor((K - 1)/2), ..., floor(K/2)}^2",
        ),
        reason="A minus sign is missing: for odd $K$ the set has one element, for even $K$ two.",
        consequence="$K$ integers, 0 among them, for odd and for even $K$.",
        holds=index_set_failures,
        as_printed=lambda K: (sympy.floor((K - 1) / 2), sympy.floor(K / 2)),
        as_corrected=centred,
    )


def _even() -> Erratum:
    return Erratum(
        name="even-kernels",
        title="Shifts of an even kernel",
        source=Source.ARTICLE,
        place="section Convolutional Layer",
        quotation=Formula(
            r"\Delta = [-\lfloor K/2 \rfloor, \dots, \lfloor K/2 \rfloor]^2",
            "Delta = [-floor(K/2), ..., floor(K/2)]^2",
        ),
        premise="Filters have size $K x K$; the examples have $K = 3$.",
        finding=Finding.SCOPE,
        corrected=Formula(
            r"\Delta \in \{-\lfloor (K - 1)/2 \rfloor, \dots, \lfloor K/2 \rfloor\}^2",
            "Delta in {-floor((K - 1)/2), ..., floor(K/2)}^2",
        ),
        reason="For odd $K$ these are the $K^2$ shifts. For even $K$ they are $(K + 1)^2$.",
        consequence=(
            "The same for odd $K$. The query sits under tap $floor((K - 1) / 2)$, counted from 0 (claim "
            "`head-assembly`)."
        ),
        holds=index_set_failures,
        as_printed=lambda K: (-sympy.floor(K / 2), sympy.floor(K / 2)),
        as_corrected=centred,
    )


def _border() -> Erratum:
    return Erratum(
        name="border",
        title="What lies outside the image",
        source=Source.DRAFT,
        place="section 2.1, eq. (1); the article and the talk do not say it either",
        quotation=Formula(
            r"Y_{i, j, :} = b + \sum_{(m, n) \in \dots} W_{m, n, :, :} X_{i + m, j + n, :}",
            "Y_{i,j,:} = b + sum_{(m,n) in ...} W_{m,n,:,:} X_{i+m,j+n,:}",
        ),
        premise=(
            "$X$ has $W x H$ pixels, attention is over the pixels of $X$, and $Y_{i,j}$ is meant at the border, too."
        ),
        finding=Finding.OPEN,
        corrected=Formula(
            r"\text{attention over the pixels of the padded image}", "attention over the pixels of the padded image"
        ),
        reason=(
            "What $X$ is outside the image is not said. If the target is no key, the softmax tends to the nearest "
            "pixels instead of to nothing."
        ),
        consequence="Keys are all pixels of the padded input, whose zeros have the value 0 (no value bias). Without "
        "padding, the outputs inside are the convolution's.",
        holds=key_failures,
        as_printed=image_keys,
        as_corrected=padded_keys,
        kind=Kind.INSTANCES,
        cases=(str(BORDER),),
    )
