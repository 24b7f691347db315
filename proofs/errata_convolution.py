"""Errata about the convolution: the draft's section 2.1 and the article's counterpart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from conv2attn.proofs.assembly import assembly_failures, padded_keys
from conv2attn.proofs.claim import Formula, Kind
from conv2attn.proofs.decide import Expr, unequal
from conv2attn.proofs.erratum import Erratum
from conv2attn.proofs.geometry import Case, Pixel

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


def count_failures(heads: Callable[[Expr], Expr]) -> list[str]:
    """Whether there is one head for each of the K x K taps."""
    K = sympy.Symbol("K", integer=True, positive=True)
    return unequal(heads(K), K * K, "number of heads")


def entries() -> list[Erratum]:
    """The entries."""
    return [_index_set(), _even(), _border(), _heads()]


def _index_set() -> Erratum:
    return Erratum(
        name="index-set",
        title="The taps of eq. (1)",
        where="draft, eq. (1)",
        printed=Formula(
            r"(m, n) \in \{\lfloor (K - 1)/2 \rfloor, \dots, \lfloor K/2 \rfloor\}^2",
            "(m, n) in {floor((K - 1)/2), ..., floor(K/2)}^2",
        ),
        corrected=Formula(
            r"(m, n) \in \{-\lfloor (K - 1)/2 \rfloor, \dots, \lfloor K/2 \rfloor\}^2",
            "(m, n) in {-floor((K - 1)/2), ..., floor(K/2)}^2",
        ),
        reason="A minus sign is missing: for odd K the set has one element, for even K two.",
        consequence="K integers, 0 among them, for odd and for even K.",
        holds=index_set_failures,
        as_printed=lambda K: (sympy.floor((K - 1) / 2), sympy.floor(K / 2)),
        as_corrected=centred,
    )


def _even() -> Erratum:
    return Erratum(
        name="even-kernels",
        title="Shifts of an even kernel",
        where="article, section Convolutional Layer",
        printed=Formula(
            r"\Delta \in [-\lfloor K/2 \rfloor, \dots, \lfloor K/2 \rfloor]^2",
            "Delta in [-floor(K/2), ...,"
            r" floor(K/2)]^2",
        ),
        corrected=Formula(
            r"\Delta \in \{-\lfloor (K - 1)/2 \rfloor, \dots, \lfloor K/2 \rfloor\}^2",
            "Delta in {-floor((K - 1)/2), ..., floor(K/2)}^2",
        ),
        reason="For even K these are (K + 1)^2 shifts.",
        consequence="The same for odd K. Where the kernel starts is a matter of padding: the code counts taps from 0.",
        holds=index_set_failures,
        as_printed=lambda K: (-sympy.floor(K / 2), sympy.floor(K / 2)),
        as_corrected=centred,
    )


def _border() -> Erratum:
    return Erratum(
        name="border",
        title="What lies outside the image",
        where="draft, eq. (1)-(4); the theorem of the article and the talk",
        printed=Formula(
            r"\boldsymbol{X}_{i + m, j + n} \text{ at the border; attention over the } T \text{ pixels of the image}",
            "X_{i+m, j+n} at the border; attention over the T pixels of the image",
        ),
        corrected=Formula(
            r"\text{attention over the pixels of the padded image}", "attention over the pixels of the padded image"
        ),
        reason="No text says what X is outside the image. If the target is no key, the softmax tends to the nearest "
        "pixels instead of to nothing.",
        consequence="Keys are all pixels of the padded input, whose zeros have the value 0 (no value bias).",
        holds=key_failures,
        as_printed=image_keys,
        as_corrected=padded_keys,
        kind=Kind.INSTANCES,
        cases=(str(BORDER),),
    )


def _heads() -> Erratum:
    return Erratum(
        name="heads",
        title="K heads for a K x K kernel",
        where="draft, section 2.2, where K is also section 2.1's kernel size; the draft's own remark sees it",
        printed=Formula(r"N_h = K", "K heads"),
        corrected=Formula(r"N_h = K^2", "K^2 heads"),
        reason="The same letter stands for the kernel size and for the number of heads; they agree for K = 1 only.",
        consequence="One head for each tap.",
        holds=count_failures,
        as_printed=lambda K: K,
        as_corrected=lambda K: K**2,
    )
