"""Sharper than the theorem: false variants are rejected, and the code's layer is expressed."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import sympy
import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.size import Size
from conv2attn.proofs.claims.common.small_convolutions import pixels
from conv2attn.proofs.claims.sharper.encoding_dimension import (
    COLUMNS,
    encoding,
    flattened,
    flattened_failures,
    fold,
    head_vector,
    identity_failures,
    injectivity_failures,
    line_tail_failures,
    pairing,
    two_dimensions_for_every_width,
)
from conv2attn.proofs.claims.sharper.exact_heads import (
    attained_failures,
    finite_heads,
    linear_failures,
    positive_failures,
)
from conv2attn.proofs.claims.sharper.head_count import (
    bounded_failures,
    independence_failures,
    limit_failures,
    mixed_failures,
    rank_failures,
)
from conv2attn.proofs.claims.sharper.head_dimension import SLICES, factor_failures, minor_failures, rank, rank_factors
from conv2attn.proofs.claims.sharper.head_mixtures import KERNELS, Kernel, mixed_heads
from conv2attn.proofs.claims.sharper.mixed_taps import (
    EXPONENT,
    betas_failures,
    growth_failures,
    miss_failures,
    scales_failures,
    score_failures,
    telescoping_failures,
    values,
)
from conv2attn.proofs.claims.sharper.nonnegative import column_basis, dimension, rays
from conv2attn.proofs.claims.sharper.one_dimension import between_failures, hull_failures
from conv2attn.proofs.claims.sharper.zero_taps import sparse_failures
from conv2attn.proofs.claims.theorem.encoding import dot
from conv2attn.proofs.claims.theorem.one_hot import Q


def _has_basis(kernel: Kernel) -> bool:
    return dimension(rays(column_basis(kernel), len(kernel))) == rank(kernel)


FALSE = {
    "folding by the absolute value": two_dimensions_for_every_width(fold=abs),
    "folding without the half": two_dimensions_for_every_width(fold=lambda z: abs(2 * z)),
    "pairing by the sum": two_dimensions_for_every_width(pairing=lambda m, n: m + n),
    "pairing by the product": two_dimensions_for_every_width(pairing=lambda m, n: m * n),
}

FALSE_VARIANTS: dict[str, partial[list[str]]] = {
    "the encoding (t, t)": partial(identity_failures, encoding=lambda t: (t, t)),
    "a cubic encoding": partial(identity_failures, encoding=lambda t: (t**3, t)),
    "a head vector of the other sign": partial(identity_failures, head_vector=lambda T, a=1: (-a, -2 * a * T)),
    "a head vector without the factor 2": partial(identity_failures, head_vector=lambda T, a=1: (-a, a * T)),
    "M = 2 W - 2 for all offsets": partial(injectivity_failures, all_offsets=2 * COLUMNS - 2),
    "M = 2 W as the smallest for all offsets": partial(injectivity_failures, all_offsets=2 * COLUMNS),
    "M = W - 1 for one query": partial(injectivity_failures, one_query=COLUMNS - 1),
    "M = 2 W - 1 as the smallest for one query": partial(injectivity_failures, one_query=2 * COLUMNS - 1),
    "M = W - 1 in numbers": partial(flattened_failures, multiplier=lambda width: width - 1),
    "no multiplier": partial(flattened_failures, multiplier=lambda width: 1),
    "a tail of q / (1 + q)": partial(line_tail_failures, bound=Q / (1 + Q)),
    "the tail of the plane": partial(line_tail_failures, bound=4 * Q / (1 + Q) ** 2),
    "weights that do not sum to 1": partial(hull_failures, weights=(sympy.Symbol("l"), sympy.Symbol("m"))),
    "the middle of three leads": partial(between_failures, lead=1),
    "heads of dimension rank - 1": partial(factor_failures, head_dim=lambda matrix: rank(matrix) - 1),
    "heads of dimension min(C_in, C_out) at least": partial(
        factor_failures, head_dim=lambda matrix: min(len(matrix), len(matrix[0]))
    ),
    "minors of side r vanish": partial(minor_failures, excess=0),
    "one head for each tap, always": partial(rank_failures, heads=len),
    "as many heads as non-zero taps, always": partial(rank_failures, heads=lambda kernel: sum(map(any, kernel))),
    "one head is enough": partial(rank_failures, heads=lambda kernel: 1),
    "no query sees all taps": partial(independence_failures, sizes=((1, 3),)),
    "rank heads with positive attention": partial(mixed_failures, most=rank),
    "rank heads, always, in the limit": partial(limit_failures, needed=rank),
    "one head more than the rank, always, in the limit": partial(limit_failures, needed=lambda k: rank(k) + 1),
    "a basis >= 0 needed in the limit": partial(limit_failures, needed=lambda k: rank(k) + (not _has_basis(k))),
    "bounded values wherever a vector >= 0 is": partial(
        bounded_failures, bounded=lambda k: bool(rays(column_basis(k), len(k)))
    ),
    "finite scores with rank heads": partial(attained_failures, most=lambda r: r),
    "heads that are tilted too far": partial(attained_failures, epsilon=2),
    "no key beside the taps": partial(positive_failures, sizes=((2, 2),)),
    "content that counts at the blank image": partial(linear_failures, extra=1),
    "scores of the next power": partial(score_failures, exponent=EXPONENT - 1),
    "scores without a gap": partial(score_failures, exponent=EXPONENT / 2),
    "other keys miss nothing": partial(miss_failures, miss=lambda flat, rest: flat),
    "seen taps are seen alike": partial(miss_failures, miss=lambda flat, rest: rest),
    "values of the kernel's size": partial(telescoping_failures, growth=lambda taps: 2 * taps - 2),
    "values that do not count the seen taps": partial(telescoping_failures, seen=lambda taps, head: taps),
    "scales that are not apart": partial(scales_failures, gap=1),
    "a thousandth of the miss": partial(scales_failures, factor=Fraction(1, 1000)),
    "an error of the order of beta times the kernel": partial(betas_failures, factor=Fraction(1, 10**10)),
    "small values of the Vandermonde system": partial(growth_failures, growth=18),
    "larger values of the Vandermonde system": partial(growth_failures, growth=10**9),
    "a dropped head too many": partial(sparse_failures, dropped=lambda kept: kept[:-1]),
    "a head twice": partial(sparse_failures, dropped=lambda kept: [*kept[:-1], kept[0]]),
}


def test_two_dimensions_give_the_heads_of_the_code() -> None:
    conv = nn.Conv2d(1, 1, (2, 3), stride=(2, 1), dilation=(1, 2))
    layer, size = attention_from_conv(conv), (5, 6)
    rows, columns = layer.spec.query_positions(Size(*size))
    for number, center in enumerate(layer.spec.tap_offsets):
        vector = head_vector(flattened(center, size[1]))
        for query in ((0, 0), (1, 1)):
            expected = layer.attention_probabilities(size, heads=[number], queries=[query])[0, 0]
            q = (rows[query[0]], columns[query[1]])
            scores = [dot(vector, encoding(flattened((k[0] - q[0], k[1] - q[1]), size[1]))) for k in pixels(size)]
            assert scores.index(max(scores)) == int(expected.argmax())
            assert scores.count(max(scores)) == 1


def test_an_injection_gives_one_encoding_for_every_width() -> None:
    numbers = {(a, b): int(pairing(fold(a), fold(b))) for a in range(-9, 10) for b in range(-9, 10)}
    assert len(set(numbers.values())) == len(numbers)
    for center in ((-1, 1), (2, -3)):
        vector = head_vector(numbers[center])
        scores = {delta: dot(vector, encoding(t)) for delta, t in numbers.items()}
        assert [delta for delta in scores if scores[delta] > scores[center] - 1] == [center]


def test_split_values_have_the_smallest_head_dimension() -> None:
    values, outputs = rank_factors(SLICES[3])
    assert (values.shape, outputs.shape) == ((3, 2), (2, 4))
    assert (values * outputs).to_Matrix().tolist() == [list(row) for row in SLICES[3]]


def test_heads_that_mix_taps_compute_the_same_convolution() -> None:
    for name in KERNELS:
        weights, values = (matrix.to_Matrix() for matrix in mixed_heads(KERNELS[name]))
        conv = nn.Conv2d(2, 2, 2, bias=False, dtype=torch.float64)
        kernel = torch.tensor(KERNELS[name], dtype=torch.float64).view(2, 2, 2, 2)  # taps, then C_in x C_out
        with torch.no_grad():
            conv.weight.copy_(kernel.permute(3, 2, 0, 1))
        x = torch.randint(-9, 10, (1, 2, 3, 4)).double()
        seen, expected = nn.functional.unfold(x, 2).view(2, 4, 6), conv(x).detach().view(2, 6)  # c, taps, queries
        for query in range(6):
            pixels_seen = sympy.Matrix(2, 4, seen[:, :, query].flatten().int().tolist())
            read = pixels_seen * weights  # C_in x heads
            output = [
                sum(read[c, h] * values[h, 2 * c + o] for c in range(2) for h in range(weights.cols)) for o in (0, 1)
            ]
            assert output == expected[:, query].int().tolist()


def test_nine_heads_with_one_dimension_come_near_a_convolution() -> None:
    """The bound of the claim; double precision adds less than 2^-40 of the values."""
    conv = nn.Conv2d(2, 3, 3, bias=False, dtype=torch.float64)
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    seen = nn.functional.unfold(x, 3).view(2, 9, 12)  # c, taps, queries
    others = x.sum((0, 2, 3)).view(2, 1) - seen.sum(1)  # c, queries
    slices = conv.weight.detach().flatten(2).unbind(-1)
    for t in (1e3, 1e6):
        powers = torch.tensor([[2 * (h - j) - 1 for j in range(10)] for h in range(1, 10)], dtype=torch.float64)
        weights = torch.exp(-(t**powers))
        weights = weights / (weights[:, 1:].sum(1, keepdim=True) + 21 * weights[:, :1])
        read = torch.einsum("hj,cjq->hcq", weights[:, 1:], seen) + weights[:, :1, None] * others
        output = torch.einsum("hoc,hcq->oq", torch.stack(values(slices)), read)
        osc = x.amax((0, 2, 3)) - x.amin((0, 2, 3))
        allowed = 18 * (1 / t + 30 * math.exp(-t)) * (conv.weight.abs().sum((2, 3)) @ osc) + 2.0**-40
        assert ((output - conv(x).detach()[0].flatten(1)).abs() <= allowed[:, None]).all()


def test_softmax_of_finite_scores_equals_a_convolution_with_one_head_more() -> None:
    """Exact in fractions; here in double precision, with scores through torch's softmax."""
    for name in (name for name in KERNELS if name != "zero"):
        attention, products = (matrix.to_Matrix() for matrix in finite_heads(KERNELS[name], (3, 4), sympy.QQ(1, 2)))
        x = torch.randint(-9, 10, (2, 12), dtype=torch.float64)
        scores = torch.tensor(attention.T.tolist(), dtype=torch.float64).log().view(attention.cols, 6, 12)
        read = torch.einsum("hqk,ck->hcq", scores.softmax(-1), x)
        row_sums = torch.tensor(attention.T.tolist(), dtype=torch.float64).view(attention.cols, 6, 12).sum(-1)
        values = torch.tensor(products.tolist(), dtype=torch.float64).view(attention.cols, 2, 2)  # heads, C_in, C_out
        output = torch.einsum("hco,hq,hcq->oq", values, row_sums, read)
        kernel = torch.tensor(KERNELS[name], dtype=torch.float64).view(2, 2, 2, 2)
        expected = nn.functional.conv2d(x.view(1, 2, 3, 4), kernel.permute(3, 2, 0, 1))[0].flatten(1)
        assert (output - expected).abs().max() <= 2.0**-40 * values.abs().sum() * row_sums.max()
        assert attention.cols == rank(KERNELS[name]) + 1
