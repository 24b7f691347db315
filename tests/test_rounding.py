"""The bounds on rounding are the formulas that the module and the claims state, evaluated with 60 digits.

Errors that occur are far below these bounds, so no comparison with them can see a constant that is a little too small.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from torch import nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.rounding import (
    EXP_ULPS,
    SMALLEST_ALPHA,
    absolute_error,
    attention_error,
    convolution_error,
    gamma,
    moment,
    unit_roundoff,
)

DIGITS = 60
UNITS = {torch.float64: mpf(2) ** -53, torch.float32: mpf(2) ** -24, torch.bfloat16: mpf(2) ** -8}
DOUBLE = UNITS[torch.float64]
CLOSE = 1e-9  # far above what double precision makes of these few sums, far below any change of a constant


def exact_gamma(terms: int, unit: mpf) -> mpf:
    return terms * unit / (1 - terms * unit)


def theta(alpha: float, power: int) -> mpf:
    """sum over all integers of |n|^power exp(-alpha n^2)."""
    last = math.ceil(math.sqrt(160 / alpha)) + 1  # exp(-160) is below the last digit
    return mp.fsum(mpf(abs(n)) ** power * mp.exp(-mpf(alpha) * n * n) for n in range(-last, last + 1))


def accumulation(alpha: float, unit: mpf, axes: int, copies: int = 1) -> mpf:
    """(near - 1) u + 2 far for the best square or interval of near keys, as a fraction of what is added up."""
    mass = theta(alpha, 0) if axes == 2 else mpf(1)
    sums = []
    for radius in range(60):
        far = theta(alpha, 0) - mp.fsum(mp.exp(-mpf(alpha) * n * n) for n in range(-radius, radius + 1))
        sums.append((copies * (2 * radius + 1) ** axes - 1) * unit + 2 * axes * far * mass)
    return min(sums) / (1 - min(sums))


def softmax(alpha: float, scores: mpf, unit: mpf, axes: int) -> mpf:
    """The error of a quotient of exponentials and their sum."""
    exponentials = 2 * EXP_ULPS * unit + mpf(5) / 4 * scores
    return (1 + exponentials) / (1 - exponentials) * (1 + unit) / (1 - accumulation(alpha, unit, axes)) - 1


def score(alpha: float, reach: mpf) -> mpf:
    first, second = (2 * theta(alpha, power) * theta(alpha, 0) for power in (1, 2))
    return 6 * DOUBLE * alpha * (2 * second + 4 * reach * first + 3 * reach**2)


def literal(layer: SelfAttention2d, alpha: float, unit: mpf) -> mpf:
    spec = layer.spec
    reach = mp.sqrt(sum(mpf(spec.dilation[axis] * (spec.kernel_size[axis] - 1)) ** 2 for axis in (0, 1)))
    is_exact = math.frexp(alpha)[0] == 0.5
    p = softmax(alpha, mpf(0), unit, 2) if is_exact else softmax(alpha, score(alpha, reach), DOUBLE, 2)
    values = exact_gamma(spec.in_channels // spec.groups + 2, unit)
    return (1 + p) * (1 + unit) * (1 + values) * (1 + accumulation(alpha, unit, 2, spec.num_heads)) - 1


def two_passes(alpha: float, unit: mpf) -> mpf:
    table = softmax(alpha, 2 * DOUBLE * alpha * theta(alpha, 2), DOUBLE, 1)
    return ((1 + table) * (1 + unit) ** 4 * (1 + accumulation(alpha, unit, 1))) ** 2


def layer_of(alpha: float | None, dtype: torch.dtype, kernel_size: tuple[int, int] = (3, 2)) -> SelfAttention2d:
    conv = nn.Conv2d(6, 4, kernel_size, dilation=(1, 2), groups=2, dtype=dtype)
    return attention_from_conv(conv, alpha=alpha)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("alpha", [0.25, 0.7, 2.0, 5.5])
def test_the_error_of_each_engine_is_its_formula(alpha: float, dtype: torch.dtype) -> None:
    with mp.workdps(DIGITS):
        layer = layer_of(alpha, dtype)
        unit, narrow = UNITS[layer.regime.dtype], mpf(0) if dtype == layer.regime.dtype else UNITS[dtype]
        spec = layer.spec
        inside, heads = spec.in_channels // spec.groups, spec.num_heads
        alpha = float(layer.alpha[0].detach())
        passes = two_passes(alpha, unit)
        expected = {
            "literal": literal(layer, alpha, unit),
            "separable": passes * (1 + exact_gamma(inside + heads, unit)) - 1,
            "factored": passes * (1 + narrow) * (1 + exact_gamma(inside * heads + 1, unit)) - 1,
        }
        for engine, value in expected.items():
            assert attention_error(layer, engine) == pytest.approx(float(value), rel=CLOSE, abs=0), engine
        assert attention_error(layer, "auto") == pytest.approx(float(max(expected.values())), rel=CLOSE, abs=0)


def test_one_tap_is_rounded_twice_on_its_way_through_half_precision() -> None:
    with mp.workdps(DIGITS):
        layer, unit = layer_of(2.0, torch.bfloat16, (1, 1)), UNITS[torch.float32]
        value = two_passes(2.0, unit) * (1 + UNITS[torch.bfloat16]) ** 2 * (1 + exact_gamma(4, unit)) - 1
        assert attention_error(layer, "factored") == pytest.approx(float(value), rel=CLOSE, abs=0)


@pytest.mark.parametrize("dtype", UNITS)
def test_one_hot_attention_and_the_convolution_add_so_many_terms(dtype: torch.dtype) -> None:
    layer = layer_of(None, dtype)
    unit = UNITS[layer.regime.dtype]
    assert convolution_error(layer) == pytest.approx(float(exact_gamma(3 * 6 + 1, unit)), rel=CLOSE, abs=0)
    assert attention_error(layer, "factored") == convolution_error(layer)
    for engine in ("literal", "separable", "sdpa"):
        assert attention_error(layer, engine) == pytest.approx(float(exact_gamma(3 + 6, unit)), rel=CLOSE, abs=0)


@given(st.floats(0.05, 30), st.integers(0, 2))
def test_moments_are_sums_over_all_integers(alpha: float, power: int) -> None:
    with mp.workdps(DIGITS):
        assert moment(alpha, power) == pytest.approx(float(theta(alpha, power)), rel=1e-13, abs=0)


def test_the_absolute_error_adds_the_outputs_rounding_and_underflow() -> None:
    scale, weights = torch.tensor([3.0, 5.0]).double(), torch.tensor([2.0, 4.0]).double()
    small = 2.0**-126
    single = absolute_error(layer_of(None, torch.float32), scale, weights, 0.5)
    assert single.tolist() == pytest.approx([1.5 + 3 * 2**26 * small, 2.5 + 5 * 2**26 * small], rel=CLOSE, abs=0)
    half = absolute_error(layer_of(None, torch.float16), scale, weights, 0.5)
    narrowing, tiny = 2.0**-11 * 1.5, 2.0**-14 * 2.0**-10
    assert half.tolist() == pytest.approx(
        [3 * (0.5 + narrowing) + 4 * tiny, 5 * (0.5 + narrowing) + 6 * tiny], rel=CLOSE
    )


def test_where_an_output_can_overflow_no_error_is_finite() -> None:
    scale, weights = torch.tensor([4e4]).double(), torch.ones(1).double()
    layer = layer_of(None, torch.float16)
    assert absolute_error(layer, scale, weights, 0.5).isfinite().all()
    assert absolute_error(layer, scale, weights, 0.7).isinf().all()
    assert absolute_error(layer, scale, weights, math.inf).isinf().all()


def test_gamma_is_that_of_the_roundoff_of_a_precision() -> None:
    for dtype, unit in UNITS.items():
        assert unit_roundoff(dtype) == unit
    assert gamma(3, 0.125) == 3 / 5


def test_attention_flatter_than_a_limit_has_no_bound() -> None:
    assert math.isfinite(attention_error(layer_of(SMALLEST_ALPHA, torch.float64), "separable"))
    assert attention_error(layer_of(0.9 * SMALLEST_ALPHA, torch.float64), "separable") == math.inf


def test_steeper_attention_has_a_smaller_error_until_its_keys_can_be_added_up() -> None:
    errors = [attention_error(layer_of(2.0**power, torch.float32), "literal") for power in range(-19, 3)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == math.inf
    assert 0 < errors[-1] < math.inf
