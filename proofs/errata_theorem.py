"""Errata of the theorem, the talk and the article."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import sympy

from conv2attn.proofs.claim import Formula, Kind
from conv2attn.proofs.decide import Expr, unequal
from conv2attn.proofs.erratum import Erratum
from conv2attn.proofs.head_dimension import rank
from conv2attn.proofs.one_hot import ALPHA

DIMENSIONS = range(1, 5)


def generic_slice(inputs: int, outputs: int) -> list[list[int]]:
    """A matrix of the largest rank: entry i^j for i = 1, ..., inputs and j = 0, ..., outputs - 1."""
    return [[i**j for j in range(outputs)] for i in range(1, inputs + 1)]


def channel_failures(channels: Callable[[int, int, int], int]) -> list[str]:
    """Whether it is the largest C_out <= D_out for which every C_in x C_out slice has a rank of at most D_h."""
    failures = []
    for head, out, inputs in product(DIMENSIONS, repeat=3):
        largest = max(c for c in range(1, out + 1) if rank(generic_slice(inputs, c)) <= head)
        if channels(head, out, inputs) != largest:
            claimed = channels(head, out, inputs)
            failures.append(f"D_h = {head}, D_out = {out}, C_in = {inputs}: {claimed}, but {largest} can be expressed")
    return failures[:3]


def expressed_channels(head: int, out: int, inputs: int) -> int:
    """D_out if D_h >= C_in, else min(D_h, D_out)."""
    return out if head >= inputs else min(head, out)


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


def entries() -> list[Erratum]:
    """The entries."""
    return [_channels(), _limit(), _equivariance()]


def _channels() -> Erratum:
    return Erratum(
        name="output-channels",
        title="How many output channels",
        where="theorem (article and talk)",
        printed=Formula(r"\min(D_h, D_{out}) \text{ output channels}", "min(D_h, D_out) output channels"),
        corrected=Formula(
            r"D_{out} \text{ output channels if } D_h \ge C_{in}, \text{ else } \min(D_h, D_{out})",
            "D_out output channels if D_h >= C_in, else min(D_h, D_out)",
        ),
        reason="The printed number is reached, but it is not the largest: one input channel has slices of rank 1, and "
        "heads of dimension 1 give it any number of output channels. The input's channels are not mentioned.",
        consequence="D_h >= min(C_in, C_out) is what a generic kernel needs (claim head-dimension).",
        holds=channel_failures,
        as_printed=lambda head, out, inputs: min(head, out),
        as_corrected=expressed_channels,
        kind=Kind.INSTANCES,
        cases=("D_h, D_out, C_in from 1 to 4, slices of the largest rank",),
    )


def _limit() -> Erratum:
    return Erratum(
        name="limit",
        title="Expressed in the limit only",
        where='theorem (article and talk): "can express"; abstract: "at least as expressive as"',
        printed=Formula(r"\alpha < \infty:\ p_t = 1", "some finite alpha gives p_t = 1"),
        corrected=Formula(r"\lim_{\alpha \to \infty} p_t = 1", "p_t -> 1 as alpha -> infinity"),
        reason="A softmax of finite scores has no zero. So K^2 heads never equal a convolution whose K^2 slices are "
        "independent, if there are more keys than taps: its A_h would be combinations of the shifts P_Delta (claim "
        "head-count), which are 0 off the taps.",
        consequence="The error is at most tau sum osc |W| (claim error-bound); in floating point it is 0 from some "
        "alpha on.",
        holds=exactness_failures,
        as_printed=lambda probability: probability,
        as_corrected=lambda probability: sympy.limit(probability, ALPHA, sympy.oo),
    )


def _equivariance() -> Erratum:
    return Erratum(
        name="equivariance",
        title="Equivariant is not invariant",
        where="article, section Relative Positional Encoding",
        printed=Formula(
            r"f(P X) = f(X)", "f(P X) = f(X): the same output independently of how the input pixels are shuffled"
        ),
        corrected=Formula(r"f(P X) = P f(X)", "f(P X) = P f(X): the outputs are shuffled likewise"),
        reason="Equivariant is the right word; its explanation is that of invariant.",
        consequence="Without positions a pixel's output depends on its value and on the set of all values.",
        holds=shuffle_failures,
        as_printed=lambda output, order: output,
        as_corrected=lambda output, order: [output[i] for i in order],
        kind=Kind.INSTANCES,
        cases=("three scalar pixels, symbolic values, all orders",),
    )
