"""Errata of the theorem and the article."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Claim, Formula, Kind
from ..theorem.one_hot import ALPHA
from .erratum import Erratum, Finding, Source, claim_of, words


def exactness_failures(probability: Callable[[Expr], Expr]) -> list[str]:
    """Whether a target with one other key at distance 1 gets all attention."""
    return unequal(probability(1 / (1 + sympy.exp(-ALPHA))), 1, "the target's probability")


def shuffle_failures(expected: Callable[[list[Expr], tuple[int, ...]], list[Expr]]) -> list[str]:
    """Whether attention on shuffled pixels is what is expected of its output on the pixels in order."""
    pixels = sympy.symbols("x1:4", real=True)
    output = _attention(pixels)
    failures = []
    for order in permutations(range(3)):
        wanted = expected(output, order)
        for found, value in zip(_attention([pixels[i] for i in order]), wanted, strict=True):
            failures += [] if found == value else [f"order {order}: {found}, not {value}"]
    return failures[:3]


def _attention(x: list[Expr] | tuple[Expr, ...]) -> list[Expr]:
    """One head on scalar pixels, W_qry = W_key = W_val = 1, no positions."""
    weights = [[sympy.exp(query * key) for key in x] for query in x]
    return [sympy.Add(*(w * value for w, value in zip(row, x, strict=True))) / sympy.Add(*row) for row in weights]


def claims() -> list[Claim]:
    """The entries, as claims."""
    return [claim_of(erratum) for erratum in entries()]


def entries() -> list[Erratum]:
    """The entries."""
    return [_limit(), _equivariance()]


def _limit() -> Erratum:
    return Erratum(
        name="limit",
        title="The theorem holds in the limit of large $alpha$",
        source=Source.THEOREM,
        place="Theorem 1",
        quotation=words(
            "can express any convolutional layer of kernel size sqrt(N_h) x sqrt(N_h)",
            r"\text{``can express any convolutional layer of kernel size } \sqrt{N_h} \times \sqrt{N_h} \text{''}",
        ),
        premise=(
            "The layer has $N_h$ heads and a relative positional encoding; scores are finite, probabilities a softmax."
        ),
        finding=Finding.SCOPE,
        corrected=Formula(r"\lim_{\alpha \to \infty} p_t = 1", "p_t -> 1 as alpha -> infinity"),
        reason=(
            "Expressed in the limit, it holds. No finite $alpha$ gives a target all attention, and in exact "
            "arithmetic no $K^2$ heads with finite scores equal a convolution whose $K^2$ slices are independent, if "
            "there are more keys than taps (claim `head-count-exact`)."
        ),
        consequence=(
            "The error is at most $tau sum osc |W|$ (claim `error-bound`); in floating point it is 0 from some "
            "$alpha$ on."
        ),
        holds=exactness_failures,
        as_printed=lambda probability: probability,
        as_corrected=lambda probability: sympy.limit(probability, ALPHA, sympy.oo),
        credit="The draft says that $alpha$ controls how spiky the attention is.",
    )


def _equivariance() -> Erratum:
    return Erratum(
        name="equivariance",
        title="Equivariant is not invariant",
        source=Source.ARTICLE,
        place="section Relative Positional Encoding",
        quotation=words(
            "equivariant to reordering, that is, it gives the same output independently of how the input pixels are "
            "shuffled"
        ),
        premise="The layer has no positional encoding.",
        finding=Finding.SCOPE,
        corrected=Formula(r"f(P X) = P f(X)", "f(P X) = P f(X): the outputs are shuffled likewise"),
        reason=(
            "Equivariant is the right word, and read of one pixel's output the sentence holds, wherever that pixel "
            "is put. Read of the image of all outputs it says invariant, $f(P X) = f(X)$."
        ),
        consequence="Without positions a pixel's output depends on its value and on the set of all values.",
        holds=shuffle_failures,
        as_printed=lambda output, order: output,
        as_corrected=lambda output, order: [output[i] for i in order],
        kind=Kind.INSTANCES,
        cases=("three scalar pixels, symbolic values, all orders",),
    )
