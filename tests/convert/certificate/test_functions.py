"""What functions of torch make of bounds: which values they keep, how many roundings they cost, what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.certificate.propagation.interval import Arithmetic, Interval
from tests.convert.certificate.following import SINGLE, X, assert_same, bounds, followed, interval, reason, rounded

Function = Callable[[Tensor], Any]

MERGED = interval([-3], [8], [0.5])
TWO = interval([-2], [-2], [0])
RELU = interval([0, 0, 0, 0.25], [8, 0.75, 0, 0.5], [0.25, 0.125, 0, 0.0625])


def joined(a: Interval, b: Interval) -> Interval:
    """Bounds on the channels of one tensor behind those of another."""
    return Interval(*(torch.cat([getattr(a, name), getattr(b, name)]) for name in ("low", "high", "error")))


@pytest.mark.parametrize(
    "function",
    [
        torch.clone,
        lambda x: x.detach(),
        lambda x: x.contiguous(memory_format=torch.contiguous_format),
        lambda x: x.flatten(2),
        lambda x: torch.flatten(x, start_dim=2, end_dim=3),
        lambda x: x.reshape(2, 4, 3, 4),
        lambda x: torch.reshape(x, shape=(2, 4, 3, 4)),
        lambda x: x.view(2, 4, 12),
        lambda x: x.view(size=(2, 4, 12)),
        lambda x: x.unflatten(3, (2, 3)),
        lambda x: x.unsqueeze(-1).squeeze(-1),
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: torch.dropout(x, 0.5, False),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, size=(3, 5), mode="nearest-exact"),
        lambda x: F.pad(x, (1, 0, 0, 1), mode="reflect"),
        lambda x: F.pad(x.unsqueeze(-1), (0, 0, 1, 0, 0, 1), mode="replicate"),
    ],
)
def test_what_moves_values_within_a_channel_keeps_its_bounds(function: Function) -> None:
    assert_same(bounds(function), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: torch.transpose(x, dim0=1, dim1=2),
        lambda x: x[:, 1:3],
        lambda x: x.chunk(chunks=2, dim=1)[0],
        lambda x: torch.split(x, 2, dim=1)[1],
        lambda x: x.flip(1),
        lambda x: torch.roll(x, shifts=1, dims=1),
        lambda x: x.flatten(),
        lambda x: x.flatten(0, 1),
        lambda x: x.reshape(2, 12, 4),
        lambda x: x.reshape(1, 8, 2, 6),
        lambda x: x.reshape(2, 8, 6),
        lambda x: x.reshape(1, 96),
        lambda x: x.reshape(4, 24),
        lambda x: x.reshape(6, 16),
        lambda x: x.reshape(48, 2),
        lambda x: x[:, :, :1].flatten(1)[:, :4].reshape(4, 2),
        lambda x: torch.cat([x, F.relu(x)], dim=2),
        lambda x: torch.cat([F.relu(x), x]),
        lambda x: torch.cat([F.relu(x), x, F.relu(x)], dim=-1),
    ],
)
def test_what_moves_values_to_other_channels_has_the_bounds_of_all(function: Function) -> None:
    assert_same(bounds(function), MERGED)


def test_values_in_a_row_keep_the_bounds_of_their_channels() -> None:
    for x in (X, interval([-1, 0], [2, 3], [0.5, 0.25])):
        expected = Interval(*(getattr(x, name).repeat_interleave(12) for name in ("low", "high", "error")))
        assert_same(bounds(lambda x: x.flatten(1), x), expected)
    assert_same(bounds(lambda x: x.flip(1).flatten(1)), MERGED)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([x, F.relu(x)], 1),
        lambda x: torch.cat([x, F.relu(x)], dim=-3),
        lambda x: torch.concat([x, F.relu(x)], dim=1),
        lambda x: torch.concatenate([x, F.relu(x)], axis=1),  # type: ignore[call-arg]
    ],
)
def test_channels_that_are_joined_keep_their_bounds(function: Function) -> None:
    assert_same(bounds(function), joined(X, RELU))


def test_channels_that_are_joined_with_nothing_are_what_they_were() -> None:
    assert_same(bounds(lambda x: torch.cat([x], 1)), X)


def test_channels_that_are_joined_with_what_has_one_bound_for_all_keep_theirs() -> None:
    found = bounds(lambda x: torch.cat([x.flip(1)[:, :2], x], 1))
    assert_same(found, joined(interval([-3, -3], [8, 8], [0.5, 0.5]), X))


def test_channels_are_shuffled_as_torch_shuffles_them() -> None:
    order = torch.channel_shuffle(torch.arange(4.0).view(1, 4, 1, 1), 2).flatten().long()
    for function in (lambda x: F.channel_shuffle(x, 2), lambda x: torch.channel_shuffle(x, groups=2)):
        assert_same(bounds(function), Interval(X.low[order], X.high[order], X.error[order]))


@pytest.mark.parametrize(
    ("function", "values", "of"),
    [
        (lambda x: x.mean((2, 3)), 12, X),
        (lambda x: torch.mean(x, dim=-1), 6, X),
        (lambda x: x.mean(2, keepdim=True), 2, X),
        (lambda x: x.mean(1), 4, MERGED),
        (lambda x: x.mean((0, 2)), 4, MERGED),
        (lambda x: x.mean(-3), 4, MERGED),
        (lambda x: x.mean(), 96, MERGED),
        (lambda x: x.mean(()), 96, MERGED),
    ],
)
def test_an_average_is_a_sum_and_a_quotient(function: Function, values: int, of: Interval) -> None:
    assert_same(bounds(function), rounded(of, of.largest, values + 1))


INTERPOLATIONS: list[tuple[Function, int]] = [
    (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), 7),
    (lambda x: F.interpolate(x.flatten(2), size=5, mode="linear"), 4),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("function", "narrowings"), INTERPOLATIONS)
def test_what_is_interpolated_is_rounded_sixteen_times_and_narrowed_three_times_an_axis(
    function: Function, narrowings: int, dtype: torch.dtype
) -> None:
    expected = Arithmetic(dtype).rounded(X, X.largest, 16, same=False, narrowings=narrowings)
    assert_same(bounds(function, dtype=dtype), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("options", [{"scale_factor": 7.0}, {"size": (40, 17), "align_corners": True}])
def test_interpolation_in_half_precision_stays_within_its_bounds(
    options: dict[str, Any], layout: torch.memory_format, dtype: torch.dtype
) -> None:
    """A number between equal ones is off by up to one unit in the last place; rounded once, it would be exact."""

    def enlarged(x: Tensor) -> Tensor:
        return F.interpolate(F.interpolate(x, size=(5, 16)), mode="bilinear", **options)

    x = (1 + torch.arange(128) / 128).to(dtype)
    images, each = x.view(1, -1, 1, 1).expand(1, -1, 2, 6).contiguous(memory_format=layout), x.double()
    result, found = (
        enlarged(images)[0].double().flatten(1),
        bounds(enlarged, Interval(each, each, 0 * each), dtype=dtype),
    )
    assert (found.low.view(-1, 1) <= result).all()
    assert (result <= found.high.view(-1, 1)).all()


def test_an_average_of_nothing_has_no_bound() -> None:
    assert reason(lambda x: x[:, :, :0].mean((2, 3))) == "an average of no values is not a number"


@pytest.mark.parametrize("function", [lambda x: x.mean((2, 3)), lambda x: x.mean(), lambda x: x.mean(1)])
def test_a_mean_whose_sum_may_overflow_has_no_bound(function: Function) -> None:
    said = reason(function, interval([2e38] * 2, [2e38] * 2, [0] * 2))
    assert said == "what is computed on the way may exceed the largest number of its dtype"
    assert bounds(function, interval([1e37], [1e37], [0])).is_bounded


@pytest.mark.parametrize(
    "function",
    [lambda x: (x * 1e-30) * 1e39, lambda x: x + 1e39, lambda x: -1e39 - x, lambda x: x / 1e39, lambda x: x * math.inf],
)
def test_a_number_beyond_single_precision_is_infinite_there_and_has_no_bound(function: Function) -> None:
    assert reason(function).endswith("is no finite number of torch.float32")


@pytest.mark.parametrize(("dtype", "value"), [(torch.bfloat16, 0.3), (torch.float16, 1e-8), (torch.float32, 0.1)])
def test_padding_adds_the_number_that_the_dtype_holds(dtype: torch.dtype, value: float) -> None:
    held = F.pad(torch.ones(1, dtype=dtype), (1, 0), value=value)[0].item()
    found = bounds(lambda x: F.pad(x, (1, 0), value=value), interval([-3, 8], [-2, 9], [0, 0]), dtype=dtype)
    assert_same(found, interval([-3, held], [held, 9], [0, 0]))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e39])
def test_padding_with_what_is_not_finite_has_no_bound(value: float) -> None:
    assert reason(lambda x: F.pad(x, (1, 0), value=value)).startswith("it pads with")


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda x: F.pad(x, (1, 0)), 0.0),
        (lambda x: F.pad(x, (1, 0), "constant", 0.375), 0.375),
        (lambda x: F.pad(x, (1, 0), value=-0.5), -0.5),
    ],
)
def test_padding_adds_its_value_to_every_channel(function: Function, value: float) -> None:
    assert_same(bounds(function), Interval(X.low.clamp(max=value), X.high.clamp(min=value), X.error))


def test_padding_with_channels_has_the_bounds_of_all_also_where_as_many_are_cut_off() -> None:
    assert_same(bounds(lambda x: F.pad(x, (0, 0, 0, 0, 1, -1))), MERGED)
    assert_same(bounds(lambda x: F.pad(x.flatten(2), (0, 0, 1, -1))), MERGED)
    assert_same(bounds(lambda x: F.pad(x, (0, 0, 0, 0, 1, 0), value=9.0)), interval([-3], [9], [0.5]))
    assert_same(bounds(lambda x: F.pad(x, (0, 0, 0, 0, 0, 0, 1, 0))), MERGED)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + F.relu(x),
        lambda x: torch.add(x, other=F.relu(x)),
        lambda x: x.clone().add_(F.relu(x)),
    ],
)
def test_a_sum_adds_ends_and_errors(function: Function) -> None:
    exact = Interval(X.low + RELU.low, X.high + RELU.high, X.error + RELU.error)
    assert_same(bounds(function), rounded(exact, X.largest + RELU.largest, 1))


@pytest.mark.parametrize(
    ("function", "a", "b"),
    [
        (lambda x: x - F.relu(x), X, RELU),
        (lambda x: x.clone().sub_(F.relu(x)), X, RELU),
        (lambda x: 3 - x, interval([3], [3], [0]), X),
    ],
)
def test_a_difference_lies_between_those_of_opposite_ends(function: Function, a: Interval, b: Interval) -> None:
    exact = Interval(a.low - b.high, a.high - b.low, a.error + b.error)
    assert_same(bounds(function), rounded(exact, a.largest + b.largest, 1))


@pytest.mark.parametrize(
    ("function", "other", "low", "high", "error"),
    [
        (lambda x: x * F.relu(x), RELU, [-24, -0.375, 0, 0.0625], [64, 0.5625, 0, 0.25], [4, 0.1875, 0, 0.0625]),
        (
            lambda x: x.clone().mul_(F.relu(x)),
            RELU,
            *([-24, -0.375, 0, 0.0625], [64, 0.5625, 0, 0.25], [4, 0.1875, 0, 0.0625]),
        ),
        (lambda x: -2.0 * x, TWO, [-16, -1.5, 0.5, -1], [6, 1, 4, -0.5], [0.5, 0.25, 1, 0.125]),
    ],
)
def test_a_product_lies_between_those_of_ends(
    function: Function, other: Interval, low: list[float], high: list[float], error: list[float]
) -> None:
    lost = SINGLE.smallest * (X.largest + other.largest)  # either factor may be taken for 0
    assert_same(bounds(function), rounded(interval(low, high, error), X.largest * other.largest, 1, lost=lost))


@pytest.mark.parametrize(("x", "number"), [(X, 0.0), (interval([0] * 4, [0] * 4, [0] * 4), 3.0)])
def test_either_factor_may_be_taken_for_0(x: Interval, number: float) -> None:
    zero = torch.zeros(4, dtype=torch.float64)
    expected = rounded(
        Interval(zero, zero, zero), zero, 1, lost=SINGLE.smallest * (x.largest + number), same=x is not X
    )
    assert_same(bounds(lambda x: x * number, x), expected)


def test_a_product_of_channels_leaves_those_bounded_that_are() -> None:
    found = bounds(lambda x: x * 2.0, interval([-math.inf, 0], [math.inf, 1], [math.inf, 0]))
    assert (float(found.low[0]), float(found.high[0])) == (-math.inf, math.inf)
    assert float(found.high[1]) == pytest.approx(2)
    assert float(found.error[1]) < 1e-5


@pytest.mark.parametrize(
    ("function", "number"),
    [
        (lambda x: x / 4, 4.0),
        (lambda x: torch.div(x, other=0.5), 0.5),
        (lambda x: x.clone().div_(3.3), 3.3),
        (lambda x: x / 2e38, 2e38),
    ],
)
def test_a_quotient_is_rounded_twice_and_the_number_s_inverse_may_be_subnormal(
    function: Function, number: float
) -> None:
    divisor = SINGLE.scalar(number)
    small, large = float(divisor.low), float(divisor.high)
    for x in (X, interval([0, 0], [0, 0], [0.0, 0.25])):
        low = torch.where(x.low < 0, x.low / small, x.low / large)
        high = torch.where(x.high < 0, x.high / large, x.high / small)
        lost = SINGLE.smallest / small + SINGLE.smallest * x.largest
        exact = Interval(low, high, x.error / small)
        assert_same(bounds(function, x), rounded(exact, x.largest / small, 2, lost=lost))


def test_a_quotient_by_the_smallest_normal_number_is_bounded() -> None:
    smallest = torch.finfo(torch.float32).tiny
    x = interval([-3 * smallest], [2 * smallest], [smallest])
    lost = 1 + smallest * x.largest
    exact = interval([-3], [2], [1])
    assert_same(bounds(lambda x: x / smallest, x), rounded(exact, x.largest / smallest, 2, lost=lost))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / F.relu(x),
        lambda x: x / -4,
        lambda x: x / 0,
        lambda x: x / 1e-50,
        lambda x: x / 2.0**-127,  # subnormal: it may be taken for 0
        lambda x: torch.div(x, -0.5),
    ],
)
def test_a_quotient_by_what_may_be_small_or_negative_has_no_bound(function: Function) -> None:
    assert reason(function) == "a quotient by what may be small or negative is not bounded"


def test_an_operand_of_fewer_axes_has_the_bounds_of_all_its_values() -> None:
    """Its axis 1 is another axis of the result, also where it is as long."""
    rows = torch.tensor([[1.0, 2, 3, 4]] * 4).view(1, 4, 4)
    found = bounds(lambda x, rows: x.reshape(2, 4, 3, 4).mean(2, keepdim=True) * 1.0 + rows[0], rows=rows)
    low, high, error = found.low.tolist(), found.high.tolist(), found.error.tolist()
    assert low == pytest.approx([-2, 0.5, -1, 1.25], abs=1e-4)
    assert high == pytest.approx([12, 4.75, 3.75, 4.5], abs=1e-4)
    assert error == pytest.approx(X.error.tolist(), abs=1e-4)


def test_channels_that_are_added_along_another_axis_have_the_bounds_of_all() -> None:
    """The channels' averages, of one axis, are added along the image's last axis, which is as long."""
    found = bounds(lambda x: x.reshape(2, 4, 3, 4) * 1.0 + x[:1].mean((0, 2, 3)))
    low, high = found.low.tolist(), found.high.tolist()
    assert low == pytest.approx([-6, -3.5, -5, -2.75], abs=1e-4)
    assert high == pytest.approx([16, 8.75, 7.75, 8.5], abs=1e-4)


def test_rows_are_joined_along_the_first_axis_unless_told_otherwise() -> None:
    rows = bounds(lambda x: x.mean((2, 3)))
    assert_same(bounds(lambda x: torch.cat([x.mean((2, 3))] * 2)), rows.merged())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: torch.add(x, x, alpha=2), "no bound is known for add with alpha"),
        (lambda x: torch.mean(x, dim=1, dtype=torch.float32), "no bound is known for mean with dtype"),
        (lambda x: torch.add(input=x, other=x), "no bound is known for add called like this"),
        (lambda x: torch.dropout(x, 0.5, True), "dropout draws random numbers while it trains"),
        (lambda x: F.dropout(x), "dropout draws random numbers while it trains"),
        (lambda x: x * 1j, "mul changes the dtype, or its operands are not of one"),
        (
            lambda x: x + torch.tensor([1.0], dtype=torch.float64),
            "add changes the dtype, or its operands are not of one",
        ),
        (lambda x: x.bool() + x, "no bound is known for bool"),
        (F.dropout, "dropout draws random numbers while it trains"),
        (lambda x: torch.dropout(x, 0.0, True), "dropout draws random numbers while it trains"),
        (lambda x: F.interpolate(x, size=5, mode="bicubic"), "no bound is known for interpolation in mode 'bicubic'"),
        (
            lambda x: F.interpolate(x, size=5, mode="bilinear", antialias=True),
            "no bound is known for interpolate with antialias",
        ),
    ],
)
def test_what_is_not_known_of_a_call_is_said(function: Function, said: str) -> None:
    assert reason(function) == said


def test_numbers_that_are_counted_have_no_bound() -> None:
    counted = torch.arange(4)
    follower, (found,) = followed(lambda x, counted: counted + counted, counted=counted)
    assert not found.is_bounded
    assert follower.problems[0].reason == "add changes the dtype, or its operands are not of one"
