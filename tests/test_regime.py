"""The exact regime is where the design says it is, in the arithmetic that runs."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
import torch

from conv2attn.convert import ConvSpec, SelfAttention2d
from conv2attn.convert.regime import EXACT_ALPHA, ONE_HOT_ALPHA, compute_dtype
from conv2attn.convert.spec import Size

SPEC = ConvSpec(1, 1, kernel_size=(3, 2), dilation=(2, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_threshold_is_the_first_integer_whose_exponential_rounds_to_zero(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    half_of_smallest = Fraction(limits.smallest_normal) * Fraction(limits.eps) / 2
    with mpmath.workdps(50):
        half = mpmath.mpf(half_of_smallest.numerator) / mpmath.mpf(half_of_smallest.denominator)
        threshold = ONE_HOT_ALPHA[dtype]
        assert mpmath.exp(-threshold) < half < mpmath.exp(-(threshold - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_from_the_threshold_on_softmax_is_exactly_one_hot(dtype: torch.dtype) -> None:
    threshold = ONE_HOT_ALPHA[dtype]
    for keys in (2, 5, 8, 17, 64, 1000):
        scores = torch.full((3, keys), -threshold, dtype=dtype)
        scores[:, keys // 2] = 0
        probabilities = scores.softmax(-1)
        assert probabilities.unique().tolist() == [0, 1]
        assert (probabilities[:, keys // 2] == 1).all()


@pytest.mark.parametrize(
    ("dtype", "alpha"),
    [(torch.float64, 1024), (torch.float32, 128), (torch.bfloat16, 128), (torch.float16, 128)],
)
def test_the_default_alpha_is_exact_for_the_precision_of_the_softmax(dtype: torch.dtype, alpha: float) -> None:
    layer = SelfAttention2d(SPEC, dtype=dtype)
    assert layer.alpha.tolist() == [alpha] * 6
    assert layer.regime.is_exact
    assert layer.attention_probabilities((9, 7)).unique().tolist() == [0, 1]


@pytest.mark.parametrize("alpha", [104.0, 110.7, 2.0**100])
def test_maps_are_one_hot_wherever_the_regime_calls_them_exact(alpha: float) -> None:
    layer = SelfAttention2d(SPEC, alpha=alpha)
    assert layer.regime.is_exact
    assert layer.attention_probabilities((9, 7)).unique().tolist() == [0, 1]


def test_just_below_the_threshold_the_regime_is_soft() -> None:
    assert not SelfAttention2d(SPEC, alpha=103.9).regime.is_exact
    assert not SelfAttention2d(SPEC, alpha=745.9, dtype=torch.float64).regime.is_exact


def test_a_single_precision_layer_made_double_is_soft_there() -> None:
    layer = SelfAttention2d(SPEC).double()
    assert not layer.regime.is_exact
    assert layer.alpha.tolist() == [128] * 6


def test_scores_are_computed_in_single_precision_only_where_they_are_exact() -> None:
    grid, large = Size(30, 20), Size(4200, 20)
    assert SelfAttention2d(SPEC).regime.score_dtype(grid) == torch.float32
    assert SelfAttention2d(SPEC).regime.score_dtype(large) == torch.float64
    assert SelfAttention2d(SPEC, alpha=0.3).regime.score_dtype(grid) == torch.float64
    assert SelfAttention2d(SPEC, dtype=torch.float64).regime.score_dtype(grid) == torch.float64


def test_probabilities_have_at_least_single_precision() -> None:
    assert {compute_dtype(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)} == {torch.float32}
    assert compute_dtype(torch.float64) == torch.float64
    assert set(EXACT_ALPHA) == set(ONE_HOT_ALPHA)


def test_on_a_very_tall_image_heads_still_find_their_pixel() -> None:
    layer = SelfAttention2d(ConvSpec(1, 1, kernel_size=(3, 3), padding=(1, 1)))
    height = 6000
    maps = layer.attention_probabilities((height, 1), queries=[(0, 0), (height - 1, 0)])
    for head, (row, column) in enumerate(layer.spec.tap_offsets):
        for query, top in enumerate((0, height - 1)):
            assert maps[head, query].argmax().item() == (top + row) * 3 + column
            assert maps[head, query].sum() == 1
