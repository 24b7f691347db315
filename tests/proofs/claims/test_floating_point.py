"""The claims about floating point reject false variants, and hold for convert/heads/regime.py and encoding.py."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.arguments import Size
from conv2attn.convert.heads.encoding import (
    FARTHEST_EXACT_CENTER,
    head_vectors,
    positional_scores,
    relative_encoding,
    scores_are_exact,
    smallest_gap,
)
from conv2attn.convert.heads.regime import EXACT_ALPHA, ONE_HOT_ALPHA
from conv2attn.proofs.claims.computing import exact_scores, floating_point, score_gap
from conv2attn.proofs.claims.computing.exact_scores import D_1, D_2, LARGEST_INTEGER, columns, rows
from conv2attn.proofs.claims.computing.score_gap import D, R

DTYPES = {"binary32": torch.float32, "binary64": torch.float64}
TAPS = [(float(row), float(column)) for row in range(3) for column in range(3)]

FALSE = {
    "threshold too low": floating_point.one_hot_threshold(thresholds={"binary32": 103, "binary64": 746}),
    "threshold not the smallest": floating_point.one_hot_threshold(thresholds={"binary32": 104, "binary64": 747}),
    "threshold of the smallest normal number": floating_point.one_hot_threshold(thresholds={"binary32": 88}),
    "default below the threshold": floating_point.exact_defaults(alphas={"binary32": 64}),
    "default not a power of two": floating_point.exact_defaults(alphas={"binary32": 129}),
    "margin too large": floating_point.exact_defaults(margins={"binary32": 35, "binary64": 402}),
    "bound without the centre": exact_scores.exact_scores(largest=rows**2 + columns**2),
    "bound without the factor 2": exact_scores.exact_scores(largest=rows**2 + columns**2 + rows * D_1 + columns * D_2),
    "bound with the wrong exponent": exact_scores.exact_scores(
        largest=rows + columns**2 + 2 * (rows * D_1 + columns * D_2)
    ),
    "rows and columns swapped": exact_scores.exact_scores(
        largest=rows**2 + columns**2 + 2 * (columns * D_1 + rows * D_2)
    ),
    "one bit more": exact_scores.exact_scores(exponent=1),
    "one bit less": exact_scores.exact_scores(exponent=-1),
    "side one too large": exact_scores.exact_scores(sides={"binary32": 2896}),
    "side one too small": exact_scores.exact_scores(sides={"binary32": 2894}),
    "terms of the target left out": score_gap.score_gap(share=score_gap.SHARE - 3 * R**2),
    "a tenth of what rounding takes": score_gap.score_gap(share=score_gap.SHARE / 10),
    "a share that grows faster than the gap": score_gap.score_gap(share=D**4),
    "two roundings too few": score_gap.score_gap(spare=2),
    "centres twice as far": score_gap.score_gap(farthest=2**26),
}


@pytest.mark.parametrize("name", DTYPES)
def test_the_formats_and_constants_are_the_codes(name: str) -> None:
    limits, form = torch.finfo(DTYPES[name]), floating_point.FORMATS[name]
    assert math.ldexp(1.0, 1 - form.precision) == limits.eps
    assert math.ldexp(1.0, form.smallest_exponent) == limits.tiny
    assert floating_point.ONE_HOT_ALPHA[name] == ONE_HOT_ALPHA[DTYPES[name]]
    assert floating_point.EXACT_ALPHA[name] == EXACT_ALPHA[DTYPES[name]]


@pytest.mark.parametrize("name", DTYPES)
def test_softmax_is_one_hot_at_the_default(name: str) -> None:
    alpha = floating_point.EXACT_ALPHA[name]
    assert torch.tensor([-alpha, 0, -alpha], dtype=DTYPES[name]).softmax(0).tolist() == [0.0, 1.0, 0.0]


def test_softmax_is_not_one_hot_below_the_threshold() -> None:
    below = torch.tensor([0.0, 1.0 - floating_point.ONE_HOT_ALPHA["binary64"]], dtype=torch.float64)
    assert below.softmax(0)[1] > 0


@given(st.integers(1, 6000), st.integers(1, 6000), st.integers(-40, 40), st.integers(-40, 40))
def test_the_proved_bound_is_the_codes(height: int, width: int, row: int, column: int) -> None:
    point = {rows: height - 1, columns: width - 1, D_1: abs(row), D_2: abs(column)}
    found = scores_are_exact(torch.float32, Size(height, width), alpha=[128.0], centers=[(float(row), float(column))])
    assert found == (int(LARGEST_INTEGER.subs(point)) <= 2**24)


def test_scores_on_the_largest_grid_are_exact_in_single_precision() -> None:
    side = exact_scores.LARGEST_SIDE["binary32"]
    ends = [0, 1, side // 2, side - 2, side - 1]
    queries = keys = torch.tensor([(r, c) for r in ends for c in ends])
    delta, centers = keys.unsqueeze(0) - queries.unsqueeze(1), torch.tensor(TAPS).long()
    exact = -128 * (delta.square().sum(-1).unsqueeze(1) - 2 * torch.einsum("qkp,hp->qhk", delta, centers))
    vectors = head_vectors(torch.full((9,), 128.0), centers.float())
    assert torch.equal(positional_scores(relative_encoding(delta.float()), vectors).long(), exact)


@given(st.sampled_from([104.0, 127.5, 128.0, 746.3]), st.lists(st.integers(-(2**22), 2**22), min_size=1, max_size=3))
def test_the_proved_gap_is_the_codes(alpha: float, center: list[int]) -> None:
    assert score_gap.FARTHEST == FARTHEST_EXACT_CENTER
    reach, c = Fraction(math.hypot(*center)), Fraction(2 * len(center) + 4, 2**53)
    share = Fraction(str(score_gap.SHARE.subs({D: 1, R: reach})))
    expected = Fraction(alpha) * (1 if alpha == 128.0 else 1 - c * share)
    # Four roundings of c times the share, which is at most 1 / 2; one of the difference; one of the product.
    assert abs(Fraction(smallest_gap(alpha, tuple(map(float, center)))) - expected) <= 4 * Fraction(alpha) / 2**53
