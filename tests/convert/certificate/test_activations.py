"""An activation's result lies between its ends, its error is its slope times the input's, and both networks round."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.certificate.propagation.interval import Interval
from tests.convert.certificate.following import X, assert_same, bounds, interval, reason, rounded

Function = Callable[[Tensor], Tensor]


def computed(low: list[float] | Tensor, high: list[float] | Tensor, slope: float, scale: float = 1.0) -> Interval:
    """Bounds on a function that is computed to 32 units in the last place of the larger of 1 and |x|, times a scale."""
    first, last = (torch.as_tensor(end, dtype=torch.float64) for end in (low, high))
    return rounded(Interval(first, last, X.error * slope), scale * X.largest.clamp(min=1), 64)


@pytest.mark.parametrize(
    ("function", "slope"),
    [(torch.sigmoid, 0.25), (torch.tanh, 1.0), (F.hardsigmoid, 1 / 6)],
    ids=["sigmoid", "tanh", "hardsigmoid"],
)
def test_an_increasing_function_is_bounded_by_its_values_at_the_ends(function: Function, slope: float) -> None:
    assert_same(bounds(function), computed(function(X.low), function(X.high), slope))


@pytest.mark.parametrize(
    ("function", "slope"), [(F.silu, 1.1), (F.gelu, 1.13), (F.hardswish, 1.5)], ids=["silu", "gelu", "hardswish"]
)
def test_a_number_times_one_between_0_and_1_lies_between_itself_and_0(function: Function, slope: float) -> None:
    assert_same(bounds(function), computed([-3, -0.5, -2, 0], [8, 0.75, 0, 0.5], slope))


def test_a_gelu_that_is_approximated_has_no_bound() -> None:
    assert "approximate='tanh'" in reason(lambda x: F.gelu(x, approximate="tanh"))


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0, 1.5])
def test_a_leaky_relu_keeps_what_is_positive_and_has_the_steeper_of_its_slopes(slope: float) -> None:
    low, high = [-3 * slope, -0.5 * slope, -2 * slope, 0.25], [8, 0.75, -0.25 * slope, 0.5]
    for function in (lambda x: F.leaky_relu(x, slope), lambda x: F.leaky_relu_(x.clone(), slope)):
        assert_same(bounds(function), computed(low, high, max(1, slope), scale=max(1, slope)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_steep_leaky_relu_rounds_what_its_slope_makes_of_a_number(dtype: torch.dtype) -> None:
    slope = 1000.3 if dtype == torch.float32 else 3.3
    x = -(1 + torch.arange(128) / 128).to(dtype)
    each = x.double()
    found = bounds(lambda x: F.leaky_relu(x, slope), Interval(each, each, 0 * each), dtype=dtype)
    result = F.leaky_relu(x, slope).double()
    assert (found.low <= result).all()
    assert (result <= found.high).all()


def test_a_leaky_relu_whose_slope_makes_a_number_too_large_has_no_bound() -> None:
    for function in (lambda x: F.leaky_relu(x, 1e38), lambda x: F.leaky_relu(x * 1e38, 2.0)):
        assert "may exceed the largest number" in reason(function)


@pytest.mark.parametrize(("function", "factor"), [(F.hardswish, 6.0), (F.gelu, 2.0), (F.silu, 1.0), (torch.tanh, 1.0)])
def test_an_activation_that_multiplies_on_the_way_may_overflow(function: Function, factor: float) -> None:
    """Hardswish is x min(max(x + 3, 0), 6) / 6, and GELU may be x (1 + erf(x / sqrt 2)) / 2."""
    largest = torch.finfo(torch.float32).max / factor
    for x in (interval([0], [1.001 * largest], [0]), interval([-1.001 * largest], [0], [0])):
        if factor > 1:
            assert reason(function, x) == "what is computed on the way may exceed the largest number of its dtype"
    assert bounds(function, interval([-0.999 * largest], [0.999 * largest], [0])).is_bounded
    assert function(torch.full((64,), 0.999 * largest)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_limits_of_a_clamp_are_those_that_the_dtype_holds(dtype: torch.dtype) -> None:
    """0.3 is 0.30078125 in bfloat16."""
    x = interval([-3, 0], [0, 8], [3, 8])
    low, high = F.hardtanh(torch.tensor([-3, 8], dtype=dtype), -0.3, 0.3).tolist()
    width = [math.nextafter(end, math.inf) for end in (-low, high)]
    assert_same(bounds(lambda x: F.hardtanh(x, -0.3, 0.3), x, dtype=dtype), interval([low, 0], [0, high], width))


@pytest.mark.parametrize(
    ("low", "high"), [(math.nan, 1.0), (-1.0, math.nan), (math.inf, math.inf), (-math.inf, -math.inf), (1e39, 1e40)]
)
def test_a_clamp_between_whose_limits_there_is_no_number_has_no_bound(low: float, high: float) -> None:
    told = f"no number of torch.float32 is between the limits {low} and {high}"
    assert told in reason(lambda x: F.hardtanh(x, low, high))


def test_between_equal_limits_there_is_one_number() -> None:
    x = interval([-3, 0], [0, 8], [3, 8])
    assert_same(bounds(lambda x: F.hardtanh(x, 0.5, 0.5), x), interval([0.5, 0.5], [0.5, 0.5], [0, 0]))


def test_a_limit_may_be_infinite_or_beyond_the_dtype() -> None:
    for low, high in ((-math.inf, math.inf), (-1e39, 1e39)):
        assert_same(bounds(lambda x, low=low, high=high: F.hardtanh(x, low, high)), X)


def test_a_leaky_relu_has_the_slope_of_torch_unless_it_is_told_another_and_a_negative_one_has_no_bound() -> None:
    assert_same(bounds(lambda x: F.leaky_relu_(x.clone())), bounds(lambda x: F.leaky_relu(x, 0.01)))
    assert "not monotone" in reason(lambda x: F.leaky_relu(x, -0.5))


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (F.relu, [0, 0, 0, 0.25], [8, 0.75, 0, 0.5]),
        (F.relu6, [0, 0, 0, 0.25], [6, 0.75, 0, 0.5]),
        (F.hardtanh, [-1, -0.5, -1, 0.25], [1, 0.75, -0.25, 0.5]),
        (lambda x: F.hardtanh_(x.clone()), [-1, -0.5, -1, 0.25], [1, 0.75, -0.25, 0.5]),
        (lambda x: F.hardtanh(x, -2.5, 7.5), [-2.5, -0.5, -2, 0.25], [7.5, 0.75, -0.25, 0.5]),
        (lambda x: F.hardtanh_(x.clone(), -2.5, 7.5), [-2.5, -0.5, -2, 0.25], [7.5, 0.75, -0.25, 0.5]),
    ],
)
def test_clamping_is_exact_and_a_difference_no_larger_than_what_is_left(
    function: Function, low: list[float], high: list[float]
) -> None:
    left = [end - start for start, end in zip(low, high, strict=True)]
    assert_same(bounds(function), interval(low, high, torch.tensor(left).minimum(X.error).tolist()))


@pytest.mark.parametrize("function", [torch.sigmoid, F.relu6])
def test_a_channel_that_may_hold_nan_is_not_bounded_by_a_function_that_saturates(function: Function) -> None:
    x = interval([-math.inf, 0, 0.5], [1, math.inf, 0.75], [0, 0, 0])
    found = bounds(function, x)
    assert found.low.tolist()[:2] == [-math.inf] * 2
    assert found.high.tolist()[:2] == [math.inf] * 2
    assert float(found.low[2]) > 0.4
    assert float(found.high[2]) < 0.8
