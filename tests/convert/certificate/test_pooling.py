"""What pooling makes of bounds: which values windows hold, how often an average is rounded, what may overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.certificate.propagation.interval import Arithmetic, Interval
from tests.convert.certificate.following import X, assert_same, bounds, interval, reason, rounded

Function = Callable[[Tensor], Any]

MERGED = interval([-3], [8], [0.5])
HALF = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, (2,), (1,), (1,)),
        lambda x: F.max_pool2d(x, 2, 2, 1, 2),
        lambda x: F.max_pool1d(x.flatten(2), 3),
        lambda x: F.max_pool1d(x.flatten(2), 3, 5, ceil_mode=True),
        lambda x: torch.max_pool2d(x, kernel_size=[2], padding=1),
        lambda x: F.adaptive_max_pool1d(x.flatten(2), 1),
        lambda x: torch.max_pool1d(x.flatten(2), 1, 1),
        lambda x: F.max_pool3d(_volumes(x), 1),
        lambda x: F.adaptive_max_pool2d(x, 1),
    ],
)
def test_a_maximum_is_one_of_the_values_of_a_channel(function: Function) -> None:
    assert_same(bounds(function), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x[:, :, :1], 2, stride=1, padding=1, dilation=2),
        lambda x: F.max_pool2d(x[:, :, :, :1], (1, 2), stride=1, padding=(0, 1), dilation=(1, 2)),
        lambda x: F.max_pool1d(x.flatten(2)[:, :, :2], 2, 1, 1, 3),
        lambda x: F.max_pool2d(x[:, :, :1], (2,), (1,), (1,), (2,)),
        lambda x: torch.max_pool1d(x.flatten(2)[:, :, :2], 2, 1, 1, 3),
    ],
)
def test_a_maximum_of_padding_alone_has_no_bound(function: Function) -> None:
    assert function(torch.ones(1, 4, 2, 6)).isinf().any()
    assert reason(function) == "a window of its maxima sees padding alone, which is minus infinity"


def test_taps_are_next_to_each_other_unless_told_otherwise() -> None:
    one_pixel = bounds(lambda x: torch.max_pool1d(x.flatten(2)[:, :, :1], 2, 1, 1))
    assert_same(one_pixel, MERGED)


def test_there_is_no_padding_unless_told_otherwise() -> None:
    assert_same(bounds(lambda x: torch.max_pool1d(x.flatten(2)[:, :, :1], 1)), MERGED)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4, 6])
def test_maxima_have_a_bound_exactly_where_no_window_sees_padding_alone(
    dilation: int, kernel: int, ceil_mode: bool
) -> None:
    span = dilation * (kernel - 1) + 1
    for length in (1, 2, 3, 5):
        for padding in range(kernel // 2 + 1):
            for stride in (1, 2, 4):
                if length + 2 * padding + ceil_mode * (stride - 1) < span:
                    continue

                def pool(x: Tensor, cut: int = length, stride: int = stride, padding: int = padding) -> Tensor:
                    return F.max_pool1d(x.flatten(2)[:, :, :cut], kernel, stride, padding, dilation, ceil_mode)

                if pool(torch.ones(1, 1, 2, 6)).isfinite().all():
                    assert_same(bounds(pool), MERGED)
                else:
                    assert "padding alone" in reason(pool)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x: F.adaptive_avg_pool1d(x.flatten(2), 1), 12),
        (lambda x: F.adaptive_avg_pool1d(x.flatten(2), 5), 4),
        (lambda x: F.adaptive_avg_pool1d(x.flatten(2), 24), 1),
        (lambda x: F.adaptive_avg_pool2d(x, 1), 12),
        (lambda x: F.adaptive_avg_pool2d(x, (1, 2)), 6),
        (lambda x: F.adaptive_avg_pool2d(x, (None, 4)), 2),
    ],
)
def test_an_adaptive_average_is_one_of_its_largest_window(function: Function, values: int) -> None:
    """The i-th of n windows of s pixels is from floor(i s / n) to ceil((i + 1) s / n)."""
    assert_same(bounds(function), rounded(X, X.largest, values + 1))


def _volumes(x: Tensor) -> Any:
    return x.unflatten(3, (2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_an_adaptive_average_along_three_axes_narrows_every_sum_and_three_quotients(dtype: torch.dtype) -> None:
    for function, values in (
        (lambda x: F.adaptive_avg_pool3d(_volumes(x), (1, 1, 2)), 8),
        (lambda x: F.adaptive_avg_pool3d(_volumes(x), 2), 2),
        (lambda x: F.adaptive_avg_pool3d(_volumes(x), (2, 1, 1)), 6),
    ):
        expected = Arithmetic(dtype).rounded(X, X.largest, values + 2, same=False, narrowings=values + 3)
        assert_same(bounds(function, dtype=dtype), expected)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_an_adaptive_average_of_all_pixels_is_their_mean_which_is_narrowed_once(dtype: torch.dtype) -> None:
    found = bounds(lambda x: F.adaptive_avg_pool3d(_volumes(x), 1), dtype=dtype)
    assert_same(found, Arithmetic(dtype).rounded(X, X.largest, 14, same=False))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("size", [1, 2, (1, 1, 2), (3, 5, 4)])
def test_an_adaptive_average_in_half_precision_stays_within_its_bounds(size: Any, dtype: torch.dtype) -> None:
    """Of 1088 times 1.1 in bfloat16, the sum stops growing at 512."""

    def pool(x: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(F.interpolate(x, size=(8, 16 * 17)).unflatten(3, (16, 17)), size)

    x = torch.tensor([1.1, -0.3], dtype=dtype)
    result, each = pool(x.view(1, 2, 1, 1).expand(1, 2, 2, 6)).double().flatten(2), x.double()
    found = bounds(pool, Interval(each, each, 0 * each), dtype=dtype)
    assert (found.low.view(-1, 1) <= result).all()
    assert (result <= found.high.view(-1, 1)).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, (2,)),
        lambda x: F.avg_pool1d(x.flatten(2), 4),
        lambda x: F.adaptive_avg_pool1d(x.flatten(2), 3),
        lambda x: F.adaptive_avg_pool2d(x, (1, 3)),
        lambda x: F.adaptive_avg_pool3d(_volumes(x), (2, 1, 1)),
    ],
)
def test_an_average_whose_sum_may_overflow_has_no_bound(function: Function) -> None:
    largest = torch.finfo(torch.float32).max / 4
    said = reason(function, interval([0, 1.01 * largest], [0, 1.01 * largest], [0, 0]))
    assert said == "what is computed on the way may exceed the largest number of its dtype"
    assert function(torch.full((1, 1, 2, 6), 1.01 * largest)).isinf().all()


def test_half_precision_is_averaged_in_single_but_along_three_axes() -> None:
    x = interval([60000], [60000], [0])
    assert bounds(lambda x: F.adaptive_avg_pool2d(x, (1, 2)), x, dtype=torch.float16).is_bounded
    assert bounds(lambda x: F.adaptive_avg_pool3d(_volumes(x), 1), x, dtype=torch.float16).is_bounded
    said = reason(lambda x: F.adaptive_avg_pool3d(_volumes(x), (1, 1, 2)), x, dtype=torch.float16)
    assert said == "what is computed on the way may exceed the largest number of its dtype"


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x: F.avg_pool1d(x.flatten(2), 3), 3),
        (lambda x: F.avg_pool2d(x, 2), 4),
        (lambda x: F.avg_pool2d(x, (2,)), 4),
        (lambda x: F.avg_pool2d(x, kernel_size=(2, 3)), 6),
        (lambda x: F.avg_pool2d(x, 2, 2, 0, False, True, None), 4),
        (lambda x: F.avg_pool3d(x.unflatten(3, (2, 3)), 2), 8),
    ],
)
def test_an_average_of_neighbours_may_hold_zeros_of_the_padding(function: Function, values: int) -> None:
    zero = Interval(X.low.clamp(max=0), X.high.clamp(min=0), X.error)
    assert_same(bounds(function), rounded(zero, X.largest, values + 1))


@pytest.mark.parametrize("dtype", HALF)
def test_an_average_of_neighbours_is_narrowed_once(dtype: torch.dtype) -> None:
    zero = Interval(X.low.clamp(max=0), X.high.clamp(min=0), X.error)
    expected = Arithmetic(dtype).rounded(zero, X.largest, 5, same=False)
    assert_same(bounds(lambda x: F.avg_pool2d(x, 2), dtype=dtype), expected)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x: F.max_pool2d(x.flatten(2), 3, 1, 1), None),
        (lambda x: F.adaptive_max_pool3d(x, (4, 2, 6)), None),
        (lambda x: F.avg_pool2d(x.flatten(2), (3, 1), 1, (1, 0)), 3),
        (lambda x: F.adaptive_avg_pool2d(x.flatten(2), (4, 6)), 1 * 2),
    ],
)
def test_pooling_images_without_a_batch_mixes_what_were_channels(function: Function, values: int | None) -> None:
    """Of [2, 4, 12], two axes are 4 and 12."""
    expected = MERGED if values is None else rounded(MERGED, MERGED.largest, values + 1)
    assert_same(bounds(function), expected)


@pytest.mark.parametrize("options", [(None, 0, False, True, 3), (2, 0, False, True, 1)])
def test_an_average_with_another_divisor_has_no_bound(options: Any) -> None:
    assert reason(lambda x: F.avg_pool2d(x, 2, *options)) == "an average with divisor_override is no average"
