"""Intervals hold what they say, and the roundings that widen them are those that were derived, in exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from conv2attn.convert.bounds.rounding import OUTWARD, unit_roundoff
from conv2attn.convert.certificate.network.interval import Arithmetic, Interval, UnboundedError, checked, linear_map

# The unit roundoffs of a dtype and of what is computed in, and the smallest numbers of both: normal, and of all.
FORMATS = {
    torch.float64: (Fraction(0), Fraction(1, 2**53), Fraction(1, 2**1022), Fraction(0)),
    torch.float32: (Fraction(0), Fraction(1, 2**24), Fraction(1, 2**126), Fraction(0)),
    torch.bfloat16: (Fraction(1, 2**8), Fraction(1, 2**24), Fraction(1, 2**126), Fraction(1, 2**133)),
    torch.float16: (Fraction(1, 2**11), Fraction(1, 2**24), Fraction(1, 2**126), Fraction(1, 2**24)),
}
TERMS, NARROWINGS = 7, 2


def is_rounded(found: float, exact: Fraction, operations: int) -> bool:
    """Whether a double is what some operations on positive numbers, each rounded once, make of an exact number."""
    return abs(Fraction(found) - exact) <= ((1 + Fraction(1, 2**53)) ** operations - 1) * exact


def relative(dtype: torch.dtype) -> Fraction:
    narrow, unit, _, _ = FORMATS[dtype]
    return (1 + TERMS * unit / (1 - TERMS * unit)) * (1 + narrow) ** NARROWINGS - 1


def interval(low: float, high: float, error: float = 0.0) -> Interval:
    return Interval(*(torch.tensor([value], dtype=torch.float64) for value in (low, high, error)))


def tensors(found: Interval) -> list[list[float]]:
    return [bound.view(-1).tolist() for bound in (found.low, found.high, found.error)]


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_sum_s_relative_error_is_that_of_its_terms_and_of_narrowing_its_result(dtype: torch.dtype) -> None:
    found = 1 + Arithmetic(dtype).relative(TERMS, NARROWINGS)
    assert is_rounded(found, 1 + relative(dtype), 10)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_number_that_a_dtype_holds_is_itself_and_another_is_as_wide_as_its_rounding(dtype: torch.dtype) -> None:
    arithmetic = Arithmetic(dtype)
    assert tensors(arithmetic.scalar(-0.375)) == [[-0.375], [-0.375], [0]]
    if dtype == torch.float64:
        return
    narrow, unit, smallest, _ = FORMATS[dtype]
    for value in (1 / 3, -1 / 3, 0.1, 1e-3):
        spread = (narrow or unit) * abs(Fraction(value)) * Fraction(OUTWARD) + smallest
        ((low,), (high,), (error,)) = tensors(arithmetic.scalar(value))
        assert low <= torch.tensor(value, dtype=dtype).item() <= high
        assert low < value < high
        assert error == 0
        (apart,) = tensors(Arithmetic(dtype, repeatable=False).scalar(value))[2]
        assert abs(Fraction(apart) - 2 * spread * Fraction(OUTWARD)) <= Fraction(8, 2**53) * spread
        for width in (Fraction(high) - Fraction(value), Fraction(value) - Fraction(low)):
            assert abs(width - spread) <= Fraction(2, 2**53) * abs(Fraction(value))  # the sum's rounding, and theirs


@pytest.mark.parametrize(("scale", "lost"), [(0.0, 0.25), (3.0, 0.0)])
@pytest.mark.parametrize("dtype", FORMATS)
def test_what_an_operation_loses_is_rounding_and_underflow(dtype: torch.dtype, scale: float, lost: float) -> None:
    _, _, smallest, subnormal = FORMATS[dtype]
    exact, terms = interval(0.0, 0.0, 1e-300), torch.tensor([scale], dtype=torch.float64)
    rounding = Fraction(scale) * relative(dtype) + (1 + relative(dtype)) * (
        Fraction(lost) + 5 * TERMS * smallest + NARROWINGS * subnormal
    )
    for same in (False, True):
        found = Arithmetic(dtype).rounded(exact, terms, TERMS, same=same, lost=lost, narrowings=NARROWINGS)
        ((low,), (high,), (error,)) = tensors(found)
        assert low == -high
        # the relative error is a double less 1, which leaves 2**-53 of 1 unknown beside the roundings
        assert abs(Fraction(high) - rounding) <= Fraction(12, 2**53) * (Fraction(scale) + rounding)
        assert error == (0 if same else math.nextafter(high - low, math.inf))


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_number_beyond_the_precision_that_is_computed_in_has_no_bound(dtype: torch.dtype) -> None:
    arithmetic = Arithmetic(dtype)
    largest = torch.finfo(arithmetic.computed).max
    assert float(arithmetic.scalar(-largest).low) <= -largest
    for value in (1.01 * largest, -1.01 * largest, math.inf, -math.inf, math.nan):
        with pytest.raises(UnboundedError):
            arithmetic.scalar(value)


@pytest.mark.parametrize("narrowings", [1, 2])
@pytest.mark.parametrize("dtype", FORMATS)
def test_a_sum_that_may_overflow_on_the_way_has_no_bound(dtype: torch.dtype, narrowings: int) -> None:
    """On the way numbers are as large as what is computed in allows, or the dtype where sums are rounded to it."""
    arithmetic, zero, one = Arithmetic(dtype), interval(0.0, 0.0), torch.ones(1, dtype=torch.float64)
    largest = torch.finfo(arithmetic.computed if narrowings == 1 else dtype).max
    most = largest / (1 + arithmetic.relative(TERMS, narrowings)) * one
    for size, fits in ((most * (1 - 2**-40), True), (most * (1 + 2**-40), False), (torch.inf * one, False)):
        if fits:
            assert arithmetic.rounded(zero, one, TERMS, same=True, reach=size, narrowings=narrowings).is_equal
        else:
            with pytest.raises(UnboundedError, match="on the way may exceed"):
                arithmetic.rounded(zero, one, TERMS, same=True, reach=size, narrowings=narrowings)
    if dtype != torch.float64:  # where that is infinite
        with pytest.raises(UnboundedError, match="on the way may exceed"):
            arithmetic.rounded(zero, most * (1 + 2**-40), TERMS, same=True, narrowings=narrowings)


def test_an_error_is_carried_with_the_rounding_of_both_networks() -> None:
    exact = interval(-1.0, 2.0, 0.5)
    found = Arithmetic(torch.float32).rounded(exact, torch.tensor([3.0], dtype=torch.float64), TERMS, same=False)
    ((_,), (high,), (error,)) = tensors(found)
    assert error == (0.5 + 2 * (3.0 * Arithmetic(torch.float32).relative(TERMS) + _underflow())) * OUTWARD
    assert 0.5 + 2 * (high - 2) <= error


def _underflow() -> float:
    arithmetic = Arithmetic(torch.float32)
    return (5 * TERMS * arithmetic.smallest) * (1 + arithmetic.relative(TERMS))


def test_values_that_reach_the_largest_number_have_no_bound_and_unknown_ones_stay_so() -> None:
    below = math.nextafter(8.0, 0.0)
    for bounds in ((-8.0, 0.0), (0.0, 8.0), (0.0, 9.0)):
        with pytest.raises(UnboundedError):
            checked(interval(*bounds), 8.0)
        assert tensors(checked(interval(*bounds))) == [[bounds[0]], [bounds[1]], [0]]
    assert tensors(checked(interval(-below, below, 1.0), 8.0)) == [[-below], [below], [1]]
    for unknown in (interval(-math.inf, math.inf), interval(math.nan, 1.0), interval(0.0, 1.0, math.nan)):
        with pytest.raises(UnboundedError):
            checked(unknown, 8.0)
    assert tensors(checked(interval(-1.0, 2.0, 9.0), 8.0)) == [[-1], [2], [math.nextafter(3, 4)]]


def test_values_between_two_ends_differ_by_no_more_than_their_difference_rounded_up() -> None:
    for ends in ((-(2.0**-54), 1.0), (-0.1, 0.7), (-1 / 3, 1.0), (5e-324, 1e-323)):
        width = float(checked(interval(*ends, math.inf)).error)
        assert Fraction(width) >= Fraction(ends[1]) - Fraction(ends[0])
        assert float(checked(interval(ends[1], ends[1], math.inf)).error) == 0


def test_a_linear_map_s_bounds_are_reached_by_each_input_at_one_of_its_ends() -> None:
    x = Interval(*(torch.tensor(values, dtype=torch.float64) for values in ([-1, 2], [3, 5], [0.5, 0.25])))
    weight = torch.tensor([[1.0, 4.0], [-1.0, -3.0]], dtype=torch.float64)
    found, _ = linear_map(x, lambda values: weight @ values, lambda values: weight.abs() @ values)
    outward = [size * (OUTWARD - 1) for size in (23, 18)]
    assert tensors(found) == [
        [-1 + 8 - outward[0], -3 - 15 - outward[1]],
        [3 + 20 + outward[0], 1 - 6 + outward[1]],
        [(0.5 + 1) * OUTWARD, (0.5 + 0.75) * OUTWARD],
    ]


def test_a_point_is_known_exactly_and_is_equal_in_both_programs() -> None:
    found = Interval.point(torch.tensor([0.1, -2.0], dtype=torch.bfloat16))
    assert tensors(found) == [[0.10009765625, -2], [0.10009765625, -2], [0, 0]]
    assert found.is_equal
    assert tensors(-found)[0] == [-0.10009765625, 2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_result_in_half_precision_is_rounded_to_it_once(dtype: torch.dtype) -> None:
    """A number just below the middle of two neighbours from 1 on is off by the unit roundoff."""
    one = torch.ones(1, dtype=torch.float64)
    found = Arithmetic(dtype).rounded(interval(1.0, 1.0), one, 1, same=False)
    unit = unit_roundoff(dtype)
    assert unit <= float(found.error) / 2 < 2 * unit
    assert unit <= float(found.high) - 1 < 2 * unit
    assert unit <= 1 - float(found.low) < 2 * unit
