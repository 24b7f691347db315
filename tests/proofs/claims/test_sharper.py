"""Sharper than the theorem: false variants are rejected, and the code's layer is expressed."""

from __future__ import annotations

from functools import partial

import sympy
import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.proofs.claims.common.scores import dot, encoding, head_vector, minus
from conv2attn.proofs.claims.common.small import points
from conv2attn.proofs.claims.sharper.encoding_dimension import (
    COLUMNS,
    flattened,
    flattened_failures,
    fold,
    injectivity_failures,
    pairing,
    two_dimensions_for_every_width,
    two_dimensions_suffice,
)
from conv2attn.proofs.claims.sharper.head_count import (
    bounded_failures,
    independence_failures,
    limit_failures,
    mixed_failures,
    rank_failures,
)
from conv2attn.proofs.claims.sharper.head_dimension import SLICES, factor_failures, minor_failures, rank, rank_factors
from conv2attn.proofs.claims.sharper.head_mixtures import KERNELS, Kernel, column_basis, dimension, mixed_heads, rays
from conv2attn.proofs.claims.sharper.one_dimension import hull_failures, one_dimension_two_targets
from conv2attn.proofs.claims.theorem.one_hot import Q
from conv2attn.proofs.prover.claim import Failures


def _has_basis(kernel: Kernel) -> bool:
    return dimension(rays(column_basis(kernel), len(kernel))) == rank(kernel)


FALSE = {
    "the encoding (t, t)": two_dimensions_suffice(encoding=lambda t: (*t, *t)),
    "a cubic encoding": two_dimensions_suffice(encoding=lambda t: (t[0] ** 3, *t)),
    "a head vector of the other sign": two_dimensions_suffice(head_vector=lambda T, a: (-a, -2 * a * T[0])),
    "a head vector without the factor 2": two_dimensions_suffice(head_vector=lambda T, a: (-a, a * T[0])),
    "a tail of q / (1 + q)": two_dimensions_suffice(tail=Q / (1 + Q)),
    "the tail of the plane": two_dimensions_suffice(tail=4 * Q / (1 + Q) ** 2),
    "the middle of three leads": one_dimension_two_targets(lead=1),
    "folding by the absolute value": two_dimensions_for_every_width(fold=abs),
    "folding without the half": two_dimensions_for_every_width(fold=lambda z: abs(2 * z)),
    "pairing by the sum": two_dimensions_for_every_width(pairing=lambda m, n: m + n),
    "pairing by the product": two_dimensions_for_every_width(pairing=lambda m, n: m * n),
}

FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "M = 2 W - 2 for all offsets": partial(injectivity_failures, all_offsets=2 * COLUMNS - 2),
    "M = 2 W as the smallest for all offsets": partial(injectivity_failures, all_offsets=2 * COLUMNS),
    "M = W - 1 for one query": partial(injectivity_failures, one_query=COLUMNS - 1),
    "M = 2 W - 1 as the smallest for one query": partial(injectivity_failures, one_query=2 * COLUMNS - 1),
    "M = W - 1 in numbers": partial(flattened_failures, multiplier=lambda width: width - 1),
    "no multiplier": partial(flattened_failures, multiplier=lambda width: 1),
    "weights that do not sum to 1": partial(hull_failures, weights=(sympy.Symbol("l"), sympy.Symbol("m"))),
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
}


def test_two_dimensions_give_the_heads_of_the_code() -> None:
    conv = nn.Conv2d(1, 1, (2, 3), stride=(2, 1), dilation=(1, 2))
    layer, size = attention_from_conv(conv), (5, 6)
    rows, columns = layer.spec.query_positions(Size(*size))
    for number, center in enumerate(layer.spec.tap_offsets):
        vector = head_vector((flattened(center, size[1]),), 1)
        for query in ((0, 0), (1, 1)):
            expected = layer.attention_probabilities(size, heads=[number], queries=[query])[0, 0]
            q = (rows[query[0]], columns[query[1]])
            scores = [dot(vector, encoding((flattened(minus(k, q), size[1]),))) for k in points(size)]
            assert scores.index(max(scores)) == int(expected.argmax())
            assert scores.count(max(scores)) == 1


def test_an_injection_gives_one_encoding_for_every_width() -> None:
    numbers = {(a, b): int(pairing(fold(a), fold(b))) for a in range(-9, 10) for b in range(-9, 10)}
    assert len(set(numbers.values())) == len(numbers)
    for center in ((-1, 1), (2, -3)):
        vector = head_vector((numbers[center],), 1)
        scores = {delta: dot(vector, encoding((t,))) for delta, t in numbers.items()}
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
