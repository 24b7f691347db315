"""What maps with weights make of bounds, in formulas: the exact map, how often it rounds, what may be taken for 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.certificate.propagation.interval import Arithmetic, Interval, affine
from tests.convert.certificate.following import SINGLE, X, assert_same, bounds, followed, interval, reason, rounded

PADDED = Interval(X.low.clamp(max=0), X.high.clamp(min=0), X.error)
NONE = interval([0] * 4, [0] * 4, [0.0, 0.25, 0, 1e-3])
MERGED = interval([-3], [8], [0.5])
TINY = 1e-39  # subnormal in single precision


def mapped(
    x: Interval,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    groups: int = 1,
    dtype: torch.dtype = torch.float32,
    narrowings: int = 1,
) -> Interval:
    """Bounds on a sum of products with weights [out, in / groups, taps]."""
    exact, scale = affine(x, weight, bias, groups=groups)
    arithmetic = Arithmetic(dtype)
    tiny, magnitudes = (weight == TINY).double(), weight.double().abs()
    magnitudes = torch.where(tiny > 0, arithmetic.smallest, magnitudes)
    largest = Interval(-x.largest, x.largest, 0 * x.error)
    flushed = affine(largest, tiny * arithmetic.smallest, None, groups=groups)[1]
    lost = 2 * (flushed + arithmetic.smallest * magnitudes.sum((1, 2)))
    terms = weight.shape[1] * weight.shape[2] + 1
    return arithmetic.rounded(exact, scale, terms, same=False, lost=lost, narrowings=narrowings)


def of_what_vanishes() -> Tensor:
    """Weights that are 0 or subnormal."""
    return torch.tensor([0.0, TINY, TINY, 0, 0, 0, TINY, 0] * 3).view(3, 4, 1, 2)


@pytest.mark.parametrize(
    ("options", "inputs"),
    [
        ({"stride": (1, 2)}, X),
        ({"padding": [0, 0]}, X),
        ({"padding": (0, 1)}, PADDED),
        ({"padding": 1, "dilation": 2}, PADDED),
        ({"padding": "same"}, PADDED),
    ],
    ids=str,
)
def test_a_convolution_sees_zeros_where_it_pads(options: dict[str, Any], inputs: Interval) -> None:
    weight, bias = torch.randn(3, 4, 1, 2), torch.randn(3)
    found = bounds(lambda x, w, b: F.conv2d(x, w, b, **options), w=weight, b=bias)
    assert_same(found, mapped(inputs, weight.flatten(2), bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("x", [X, NONE])
def test_a_convolution_of_groups_is_narrowed_once_and_may_lose_what_is_subnormal(
    x: Interval, dtype: torch.dtype
) -> None:
    for weight in (torch.randn(6, 2, 1, 2).to(dtype), of_what_vanishes().view(6, 2, 1, 2).to(dtype)):
        found = bounds(lambda x, w: F.conv2d(x, w, None, 1, 0, 1, 2), x, w=weight, dtype=dtype)
        assert_same(found, mapped(x, weight.flatten(2), groups=2, dtype=dtype))


HUGE = interval([1e38], [1e38], [0])  # 16 times that, plus and minus, is 0 and overflows on the way
ALTERNATING = torch.tensor([3.0] * 8 + [-3.0] * 8)


@pytest.mark.parametrize(
    ("function", "weight"),
    [
        (lambda x, w: F.conv2d(x, w, padding=(1, 0)), ALTERNATING.view(1, 1, 4, 4)),
        (lambda x, w: F.conv_transpose2d(x, w), ALTERNATING.view(1, 1, 4, 4)),
        (lambda x, w: F.conv1d(x.flatten(2), w), ALTERNATING.view(1, 1, 16)[..., 4:12]),
        (lambda x, w: F.linear(x.flatten(1), w), ALTERNATING.view(1, 16)[:, 2:14]),
    ],
)
def test_a_sum_of_products_that_may_overflow_on_the_way_has_no_bound(function: Any, weight: Tensor) -> None:
    assert reason(function, HUGE, w=weight) == "what is computed on the way may exceed the largest number of its dtype"


def test_half_precision_is_summed_in_single_but_by_a_transposed_convolution() -> None:
    """60000 + 30000 overflows float16, also if 60000 is to be taken off."""
    x, weight = interval([60000], [60000], [0]), torch.tensor([1.0, -1.0, 0.5], dtype=torch.float16).view(1, 1, 1, 3)
    assert bounds(lambda x, w: F.conv2d(x, w), x, w=weight, dtype=torch.float16).is_bounded
    small = weight * 0.5
    said = reason(lambda x, w: F.conv_transpose2d(x, w), x, w=small, dtype=torch.float16)
    assert said == "what is computed on the way may exceed the largest number of its dtype"


def test_a_convolution_along_one_axis_or_three_is_one_along_two() -> None:
    weight = torch.randn(3, 4, 1, 2)
    expected = mapped(X, weight.flatten(2))
    assert_same(bounds(lambda x, w: F.conv1d(x.flatten(2), w, padding=0), w=weight[:, :, 0]), expected)
    assert_same(bounds(lambda x, w: F.conv3d(x.unsqueeze(2), w), w=weight.unsqueeze(2)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_transposed_convolution_stuffs_zeros_and_may_narrow_every_tap(dtype: torch.dtype) -> None:
    weight, bias = torch.randn(4, 3, 2, 3, dtype=dtype), torch.randn(6, dtype=dtype)
    found = bounds(lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2), w=weight, b=bias, dtype=dtype)
    kernel = weight.view(2, 2, 3, 6).transpose(1, 2).reshape(6, 2, 6)
    assert_same(found, mapped(PADDED, kernel, bias, groups=2, dtype=dtype, narrowings=2 * 3 + 2))


def test_a_transposed_convolution_is_of_one_group_unless_it_is_told_more() -> None:
    weight = torch.randn(4, 3, 2)
    found = bounds(lambda x, w: F.conv_transpose1d(x.flatten(2), w), w=weight)
    assert_same(found, mapped(PADDED, weight.transpose(0, 1), narrowings=4))


def test_a_linear_layer_maps_columns_which_a_batch_of_rows_has_bounds_of() -> None:
    weight, bias = torch.randn(3, 4), torch.randn(3)
    found = bounds(lambda x, w, b: F.linear(x.mean((2, 3)), w, b), w=weight, b=bias)
    mean = rounded(X, X.largest, 13)
    assert_same(found, mapped(mean, weight.unsqueeze(-1), bias))


def test_a_linear_layer_on_the_last_of_more_axes_has_one_bound_for_all() -> None:
    weight = torch.randn(3, 6)
    found = bounds(lambda x, w: F.linear(x, w), w=weight)
    assert_same(found, mapped(MERGED.expanded(6), weight.unsqueeze(-1)).merged())
    found = bounds(lambda x, w: F.linear(x.reshape(2, 4, 3, 4), w), w=weight[:, :4])  # as many as there are channels
    assert_same(found, mapped(MERGED.expanded(4), weight[:, :4].unsqueeze(-1)).merged())


HALF = [torch.bfloat16, torch.float16]


def positive(*shape: int) -> Tensor:
    """Numbers from 1 to 2, which errors of either sign are relative to."""
    return 1 + torch.rand(shape, dtype=torch.float64)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: x[..., 1:],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "transpose": lambda x: x.transpose(2, 3),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "channels last": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", HALF)
def test_no_layout_rounds_more_often_than_is_counted(dtype: torch.dtype, layout: str) -> None:
    """Torch normalises what is not contiguous step by step, and adds a bias to what it has rounded."""
    laid = LAYOUTS[layout](positive(64, 4, 2, 6).to(dtype))
    shape = laid.shape
    scales = {name: positive(shape[1]).to(dtype) for name in ("mean", "variance", "weight", "bias")}
    maps = {"w": positive(3, shape[-1]).to(dtype), "b": positive(3).to(dtype)}
    x = Interval.of(1.0, 2.0, 1e-30).expanded(4)  # all of a result's error is then the rounding of both networks
    for function, held in ((norm, scales), (lambda x, w, b: F.linear(x, w, b), maps)):
        counted = bounds(lambda x, f=function, **held: f(LAYOUTS[layout](x), **held), x, dtype=dtype, **held).error / 2
        exact = function(laid.double(), **{name: value.double() for name, value in held.items()})
        assert float((function(laid, **held).double() - exact).abs().max()) <= float(counted.max())


@pytest.mark.parametrize("dtype", HALF)
def test_in_half_precision_batch_normalisation_is_rounded_seven_times(dtype: torch.dtype) -> None:
    """And by the smallest number where the radicand, or what the weight multiplies, is subnormal."""
    limits, arithmetic = torch.finfo(dtype), Arithmetic(dtype)
    held = {name: value.to(dtype) for name, value in STATISTICS.items()} | {"variance": torch.zeros(4, dtype=dtype)}
    mean, weight, bias, step = (
        held["mean"].double(),
        held["weight"].double(),
        held["bias"].double(),
        limits.tiny * limits.eps,
    )
    for eps in (1e-3, 1e-6):
        inverse = torch.full((4,), eps, dtype=torch.float64).rsqrt()
        factor, reach = weight * inverse, X.largest + mean.abs()
        exact, _ = affine(X, factor.view(4, 1, 1), bias - mean * factor, groups=4)
        lost = SINGLE.smallest * 8 * (1 + factor.abs() + (1 + inverse) * (1 + reach))
        lost = lost + factor.abs() * reach * (SINGLE.smallest + step) / eps + weight.abs() * step
        scale = factor.abs() * reach + bias.abs()
        expected = arithmetic.rounded(exact, scale, 8, same=False, lost=lost, narrowings=7)
        found = bounds(lambda x, eps=eps, **held: norm(x, eps=eps, **held), dtype=dtype, **held)
        for name in ("low", "high", "error"):
            assert torch.allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=0)


def test_a_variance_that_half_precision_may_take_for_zero_is_not_divided_by() -> None:
    held = {name: value.half() for name, value in STATISTICS.items()} | {"variance": torch.zeros(4).half()}
    said = reason(lambda x, **held: norm(x, eps=1e-7, **held), dtype=torch.float16, **held)
    assert said == "its variance and eps may vanish in torch.float16"


@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
def test_a_single_image_is_convolved_without_a_bound(function: Any) -> None:
    said = reason(lambda x, w: function(x[0], w), w=torch.randn(4, 4, 1, 1))
    assert said == "only a batch of images is convolved with a bound"


STATISTICS: dict[str, Any] = {
    "mean": torch.tensor([1.0, -2, 0.5, 0]),
    "variance": torch.tensor([0.25, 4, 1, 0.5]),
    "weight": torch.tensor([2.0, -1, 0.5, 3]),
    "bias": torch.tensor([1.0, 0, -1, 2]),
}


def normalised(x: Interval, eps: float, *, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Interval:
    """Bounds on (x - mean) / sqrt(variance + eps) * weight + bias, of eight roundings."""
    mean, variance, weight, bias = (tensor.double() for tensor in (mean, variance, weight, bias))
    radicand = variance + eps
    inverse = 1 / radicand.sqrt()
    factor, reach = weight * inverse, x.largest + mean.abs()
    exact, _ = affine(x, factor.view(4, 1, 1), bias - mean * factor, groups=4)
    lost = SINGLE.smallest * 8 * (1 + factor.abs() + (1 + inverse) * (1 + reach))
    lost = lost + factor.abs() * reach * SINGLE.smallest / radicand  # the variance or eps may be taken for 0
    return rounded(exact, factor.abs() * reach + bias.abs(), 8, lost=lost)


def norm(x: Tensor, mean: Tensor, variance: Tensor, **options: Any) -> Tensor:
    return F.batch_norm(x, mean, variance, **options)


@pytest.mark.parametrize("zero", [None, "weight", "mean", "variance"])
@pytest.mark.parametrize("eps", [1e-5, 0.5, 2.0**-125])
def test_batch_normalisation_is_an_affine_map_of_eight_roundings(eps: float, zero: str | None) -> None:
    held = STATISTICS if zero is None else {**STATISTICS, "bias": torch.zeros(4), zero: torch.zeros(4)}
    for x in (X, NONE):
        assert_same(bounds(lambda x, **held: norm(x, eps=eps, **held), x, **held), normalised(x, eps, **held))


def test_batch_normalisation_without_weights_multiplies_by_one_and_adds_nothing() -> None:
    held = {name: STATISTICS[name] for name in ("mean", "variance")}
    expected = normalised(X, 1e-5, **held, weight=torch.ones(4), bias=torch.zeros(4))
    assert_same(bounds(norm, **held), expected)


@pytest.mark.parametrize(
    ("variance", "eps"),
    [(0.0, 1e-50), (1e-60, 1e-50), (0.0, 0.0), (-1.0, 0.5), (2.0**-126, 2.0**-127), (math.nan, 1.0)],
)
def test_a_variance_that_may_vanish_with_its_eps_is_not_divided_by(variance: float, eps: float) -> None:
    """Of two numbers below the smallest normal one, 2^-126, both may be taken for 0."""
    held = {**STATISTICS, "variance": torch.full((4,), variance)}
    follower, (found,) = followed(lambda x, **held: norm(x, eps=eps, **held), **held)
    assert not found.is_bounded
    assert "its variance and eps may vanish in torch.float32" in [problem.reason for problem in follower.problems]


@pytest.mark.parametrize(
    "large",
    [
        {"mean": torch.full((4,), 1e38), "weight": torch.full((4,), 10.0)},
        {"weight": torch.full((4,), 1e38), "variance": torch.full((4,), 1e4)},
        {"weight": torch.full((4,), 1e-10), "variance": torch.full((4,), 1e-14), "mean": torch.full((4,), 1e33)},
        {"bias": torch.full((4,), 3.4e38), "weight": torch.full((4,), 1e37)},
    ],
)
def test_batch_normalisation_that_may_overflow_in_some_order_has_no_bound(large: dict[str, Tensor]) -> None:
    held = {**STATISTICS, **large}
    said = reason(lambda x, **held: norm(x, eps=0.0, **held), **held)
    assert said == "what is computed on the way may exceed the largest number of its dtype"


@pytest.mark.parametrize("missing", [(), ("mean", "variance")])
def test_batch_normalisation_by_the_batch_has_no_bound(missing: tuple[str, ...]) -> None:
    held: dict[str, Any] = {name: STATISTICS[name] for name in ("mean", "variance") if name not in missing}
    absent: dict[str, Any] = dict.fromkeys(missing)
    said = reason(lambda x, **held: norm(x, training=True, **held, **absent), **held)
    assert said == "batch norm takes its statistics from the batch"


def test_the_operator_of_batch_normalisation_takes_its_tensors_in_another_order_and_has_no_bound() -> None:
    """``torch.batch_norm`` takes the weight where ``F.batch_norm`` takes the mean."""
    names: dict[str, Any] = {"momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False}

    def by_position(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5, False)

    def by_name(x: Tensor, mean: Tensor, variance: Tensor, **held: Any) -> Tensor:
        return torch.batch_norm(x, running_mean=mean, running_var=variance, training=False, **held, **names)

    def by_both(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.batch_norm(x, weight, bias, running_mean=mean, running_var=variance, training=False, **names)

    for function in (by_position, by_name):
        assert reason(function, **STATISTICS) == "the order of its arguments is not that of torch.nn.functional"
    assert reason(by_both, **STATISTICS) == "no bound is known for batch_norm called like this"


def test_weights_that_are_computed_have_no_bound() -> None:
    assert reason(lambda x, w: F.conv2d(x, w * 2), w=torch.randn(3, 4, 1, 1)) == "its weight is computed while it runs"
    assert reason(lambda x, w: F.conv2d(x, w, x.mean()[None]), w=torch.randn(1, 4, 1, 1)).startswith("its bias")
