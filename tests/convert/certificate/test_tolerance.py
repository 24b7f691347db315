"""From a tolerance to the smallest sharpness that is certified to meet it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    SelfAttention,
    SelfAttention2d,
    alpha_for,
    attention_from_conv,
    certify,
)
from conv2attn.convert.heads.regime import EXACT_ALPHA, ONE_HOT_ALPHA, compute_dtype
from conv2attn.proofs.campaign.strategies import conv_specs, convolution_of

SPEC = ConvSpec(2, 3, kernel_size=(3, 2), padding=(1, 1))
FLATTEST_ALPHA = 2.0**-6
DTYPES = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])


def bound_with(layer: SelfAttention, alpha: float, low: float, high: float) -> float:
    other = type(layer)(layer.spec, weight=layer.weight, bias=layer.bias, alpha=alpha)
    return certify(other, input_range=(low, high)).bound


def next_below(alpha: float, dtype: torch.dtype) -> float:
    value = torch.tensor(alpha, dtype=dtype)
    return torch.nextafter(value, torch.zeros_like(value)).item()


@settings(max_examples=40)
@given(conv_specs(max_kernel=3, max_channels=3), DTYPES, st.floats(0.001, 0.999), st.floats(-3, 0), st.floats(0.1, 3))
def test_the_certificate_meets_the_tolerance_and_the_next_smaller_alpha_does_not(
    spec: ConvSpec, dtype: torch.dtype, share: float, low: float, high: float
) -> None:
    layer = attention_from_conv(convolution_of(replace(spec, bias=False), dtype=dtype))
    smallest = bound_with(layer, EXACT_ALPHA[compute_dtype(dtype)], low, high)
    largest = bound_with(layer, 0.5, low, high)
    tolerance = smallest ** (1 - share) * max(largest, smallest) ** share
    alpha = alpha_for(tolerance, layer, (low, high))
    assert alpha == torch.tensor(alpha, dtype=compute_dtype(dtype)).item()
    assert bound_with(layer, alpha, low, high) <= tolerance
    assert alpha == FLATTEST_ALPHA or bound_with(layer, next_below(alpha, compute_dtype(dtype)), low, high) > tolerance


def test_the_present_alpha_does_not_matter_and_is_kept() -> None:
    layer = SelfAttention2d(SPEC)
    other = SelfAttention2d(SPEC, weight=layer.weight, bias=layer.bias, alpha=0.3)
    assert alpha_for(1e-2, layer, (-1, 1)) == alpha_for(1e-2, other, (-1, 1))
    assert other.alpha.unique().tolist() == [pytest.approx(0.3)]


def test_between_soft_and_exact_rounding_only_one_hot_attention_will_do() -> None:
    layer = SelfAttention2d(SPEC)
    soft, exact = (bound_with(layer, alpha, -1, 1) for alpha in (90.0, 128.0))
    assert exact < soft
    assert alpha_for((soft * exact) ** 0.5, layer, (-1, 1)) == ONE_HOT_ALPHA[torch.float32]


def test_a_tolerance_below_what_rounding_may_come_to_is_refused_with_the_smallest_that_is_not() -> None:
    layer = SelfAttention2d(SPEC)
    smallest = bound_with(layer, EXACT_ALPHA[torch.float32], -1, 1)
    with pytest.raises(ConversionError, match=f"rounding alone may come to {smallest:.3g}"):
        alpha_for(smallest * 0.999, layer, (-1, 1))
    assert alpha_for(smallest, layer, (-1, 1)) == ONE_HOT_ALPHA[torch.float32]


@pytest.mark.parametrize("tolerance", [0.0, math.nan])
def test_a_tolerance_that_is_no_positive_number_is_refused(tolerance: float) -> None:
    with pytest.raises(ConversionError, match="tolerance must be a positive number"):
        alpha_for(tolerance, SelfAttention2d(SPEC), (-1, 1))


def test_without_anything_to_blur_the_flattest_attention_will_do() -> None:
    layer = SelfAttention2d(ConvSpec(2, 3, kernel_size=(3, 2)))
    assert alpha_for(1e3, layer, (2, 2)) == FLATTEST_ALPHA
