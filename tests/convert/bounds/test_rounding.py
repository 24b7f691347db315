"""The bounds on rounding are the formulas that the module and the claims state, evaluated with 60 digits.

Errors that occur are far below these bounds, so no comparison with them can see a constant that is a little too small.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from torch import nn

from conv2attn.convert import SelfAttention1d, SelfAttention2d, attention_from_conv
from conv2attn.convert.bounds.rounding import (
    OUTWARD,
    SMALLEST_ALPHA,
    Sums,
    attention_rounding,
    convolution_error,
    gamma,
    joined_error,
    moment,
    unit_roundoff,
    weighing_keys,
)
from conv2attn.convert.engines import ENGINES, engine_error
from conv2attn.convert.engines.literal import LiteralEngine
from conv2attn.convert.spec import ConvSpec

DIGITS = 60
UNITS = {torch.float64: mpf(2) ** -53, torch.float32: mpf(2) ** -24, torch.bfloat16: mpf(2) ** -8}
DOUBLE = UNITS[torch.float64]
COMPUTED = UNITS | {torch.bfloat16: UNITS[torch.float32]}  # in what precision sums are computed
EXP_ULPS = 32  # units in the last place that an exponential may err by
CLOSE = 1e-9  # far above what double precision makes of these few sums, far below any change of a constant


def exact_gamma(terms: int, unit: mpf) -> mpf:
    return terms * unit / (1 - terms * unit)


@cache
def theta(alpha: float, power: int) -> mpf:
    """sum over all integers of |n|^power exp(-alpha n^2)."""
    last = math.ceil(math.sqrt(160 / alpha)) + 1  # exp(-160) is below the last digit
    return (power == 0) + 2 * mp.fsum(mpf(n) ** power * mp.exp(-mpf(alpha) * n * n) for n in range(1, last + 1))


@cache
def accumulation(alpha: float, unit: mpf, axes: int, copies: int = 1) -> mpf:
    """(near - 1) u + 2 far for the best square or interval of near keys, as a fraction of what is added up."""
    mass = theta(alpha, 0) if axes == 2 else mpf(1)
    sums, far = [], theta(alpha, 0) + 1
    for radius in range(60):
        far -= 2 * mp.exp(-mpf(alpha) * radius * radius)
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
    reach = mp.sqrt(sum(mpf(spec.dilation[axis] * (spec.kernel_size[axis] // 2)) ** 2 for axis in (0, 1)))
    is_exact = math.frexp(alpha)[0] == 0.5
    p = softmax(alpha, mpf(0), unit, 2) if is_exact else softmax(alpha, score(alpha, reach), DOUBLE, 2)
    values = exact_gamma(spec.in_channels // spec.groups + 2, unit)
    return (1 + p) * (1 + unit) * (1 + values) * (1 + accumulation(alpha, unit, 2, spec.num_heads)) - 1


def weighing(alpha: float, unit: mpf) -> mpf:
    """Two tables or stencils, the products with them, and what they leave out, before anything is added up."""
    table = softmax(alpha, 2 * DOUBLE * alpha * theta(alpha, 2), DOUBLE, 1)
    return ((1 + table) * (1 + unit) ** 4 * (1 + unit)) ** 2


def two_passes(alpha: float, unit: mpf) -> mpf:
    return weighing(alpha, unit) * (1 + accumulation(alpha, unit, 1)) ** 2


def smoothing(alpha: float, unit: mpf) -> mpf:
    """Two passes, or both axes in one sum of at most 49 terms."""
    joint = min(accumulation(alpha, unit, 2), exact_gamma(49, unit))
    return max(two_passes(alpha, unit), weighing(alpha, unit) * (1 + joint))


def layer_of(alpha: float | None, dtype: torch.dtype, kernel_size: tuple[int, int] = (3, 2)) -> SelfAttention2d:
    conv = nn.Conv2d(6, 4, kernel_size, dilation=(1, 2), groups=2, dtype=dtype)
    return attention_from_conv(conv, alpha=alpha)


@pytest.mark.parametrize(
    ("alpha", "dtype"),
    [
        *((0.02, torch.float64), (0.25, torch.float32), (0.7, torch.bfloat16), (2.0, torch.float64)),
        *((5.5, torch.float32), (0.02, torch.bfloat16), (5.5, torch.float64)),
    ],
)
def test_the_error_of_each_engine_is_its_formula(alpha: float, dtype: torch.dtype) -> None:
    with mp.workdps(DIGITS):
        layer = layer_of(alpha, dtype)
        unit, narrow = UNITS[layer.regime.dtype], mpf(0) if dtype == layer.regime.dtype else UNITS[dtype]
        spec = layer.spec
        inside, heads = spec.in_channels // spec.groups, spec.num_heads
        alpha = float(layer.alpha[0].detach())
        passes, left_out = two_passes(alpha, unit), unit / 2**8 * weighing_keys(alpha, float(unit), axes=1)
        expected = {
            "literal": literal(layer, alpha, unit),
            "separable": passes * (1 + left_out) ** 2 * (1 + exact_gamma(inside + heads, unit)) - 1,
            "factored": smoothing(alpha, unit) * (1 + narrow) * (1 + exact_gamma(inside * heads + 1, unit)) - 1,
        }
        for engine, value in expected.items():
            assert engine_error(layer.values(), engine) == pytest.approx(float(value), rel=CLOSE, abs=0), engine
        assert engine_error(layer.values(), "auto") == pytest.approx(float(max(expected.values())), rel=CLOSE, abs=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_is_smoothed_of_one_tap_is_rounded_to_half_precision_twice(dtype: torch.dtype) -> None:
    with mp.workdps(DIGITS):
        layer, terms = layer_of(2.0, dtype, (1, 1)), exact_gamma(3 + 1, COMPUTED[dtype])
        narrow = UNITS[dtype] if dtype == torch.bfloat16 else mpf(0)
        value = smoothing(2.0, COMPUTED[dtype]) * (1 + narrow) ** 2 * (1 + terms) - 1
        assert engine_error(layer.values(), "factored") == pytest.approx(float(value), rel=CLOSE, abs=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_sums_that_are_joined_err_as_both_and_one_hot_as_the_convolution(dtype: torch.dtype) -> None:
    with mp.workdps(DIGITS):
        unit = COMPUTED[dtype]
        sums = (1 + exact_gamma(3 * 6 + 1, unit)) * (1 + accumulation(2.0, unit, 1, 6))
        expected = float(two_passes(2.0, unit) * sums - 1)
    assert joined_error(layer_of(2.0, dtype).values()) == pytest.approx(expected, rel=CLOSE, abs=0)
    assert joined_error(layer_of(None, dtype).values()) == convolution_error(layer_of(None, dtype).values()) < expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_one_hot_attention_and_the_convolution_add_so_many_terms(dtype: torch.dtype) -> None:
    layer = layer_of(None, dtype)
    unit = UNITS[layer.regime.dtype]
    assert convolution_error(layer.values()) == pytest.approx(float(exact_gamma(3 * 6 + 1, unit)), rel=CLOSE, abs=0)
    assert engine_error(layer.values(), "factored") == convolution_error(layer.values())
    for engine in ("literal", "separable", "sdpa"):
        assert engine_error(layer.values(), engine) == pytest.approx(float(exact_gamma(3 + 6, unit)), rel=CLOSE, abs=0)


def test_heads_with_trained_positions_are_added_up_in_one_sum_with_their_channels() -> None:
    layer = attention_from_conv(nn.Conv2d(6, 4, (2, 3), groups=2))
    apart, together = (gamma(terms, 2.0**-24) for terms in (3 + 6, 3 * 6 + 1))
    assert ENGINES["separable"].error(layer.values()) == apart
    layer.train_positions()
    assert ENGINES["separable"].error(layer.values()) == together
    frozen = attention_from_conv(nn.Conv2d(6, 4, (2, 3), groups=2))
    frozen.set_axis_scores(torch.zeros(6, 9), torch.zeros(6, 9))
    assert ENGINES["separable"].error(frozen.values()) >= together


@given(st.floats(0.05, 30), st.integers(0, 2))
def test_moments_are_sums_over_all_integers(alpha: float, power: int) -> None:
    with mp.workdps(DIGITS):
        assert moment(alpha, power) == pytest.approx(float(theta(alpha, power)), rel=1e-13, abs=0)


def sums(scale: list[float], weights: list[float], *, flushed: float = 0.0, largest: float = 1.0) -> Sums:
    """Sums of each output channel: the same for the pixels that are read and for all."""
    read, absolute = torch.tensor(scale).double(), torch.tensor(weights).double()
    return Sums(read, read, absolute, torch.full_like(read, flushed), largest)


def test_the_absolute_error_adds_the_outputs_rounding_and_underflow() -> None:
    some = sums([3.0, 5.0], [2.0, 4.0])
    small = 2.0**-126 * 2.0**32
    single = attention_rounding(layer_of(None, torch.float32).values(), some, 0.5)
    assert single.tolist() == pytest.approx([1.5 + 3 * small, 2.5 + 5 * small], rel=CLOSE, abs=0)
    half = attention_rounding(layer_of(None, torch.float16).values(), some, 0.5)
    narrowing, tiny = 2.0**-11 * 1.5, 2.0**-14 * 2.0**-10
    assert half.tolist() == pytest.approx(
        [3 * (0.5 + narrowing) + 4 * tiny, 5 * (0.5 + narrowing) + 6 * tiny], rel=CLOSE
    )


@pytest.mark.parametrize("conv", [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d])
def test_sums_along_three_axes_lose_more_to_underflow_and_transposed_taps_in_half_precision_most(
    conv: type[nn.Conv2d],
) -> None:
    layer, half = attention_from_conv(conv(2, 2, 3)), attention_from_conv(conv(2, 2, 3).half())
    small = 2.0**-126 * 2.0**23 * 2.0**7 * (max(layer.spec.axes, 2) + 2)
    some = sums([0.0, 0.0], [2.0, 4.0], flushed=small)
    expected = [1.5 * small + 3 * small, 1.5 * small + 5 * small]
    assert attention_rounding(layer.values(), some, 0.5).tolist() == pytest.approx(expected, rel=CLOSE, abs=0)
    taps, tiny = 3 if layer.spec.transposed else 0, 2.0**-24
    narrowed = [one + (2 + taps + weights) * tiny for one, weights in zip(expected, (2, 4), strict=True)]
    assert attention_rounding(half.values(), some, 0.5).tolist() == pytest.approx(narrowed, rel=CLOSE, abs=0)


def test_one_hot_attention_errs_relative_to_what_is_read_and_overflows_where_any_sum_may() -> None:
    soft, one_hot = layer_of(2.0, torch.float32), layer_of(None, torch.float32)

    def bound(layer: SelfAttention2d, largest: float) -> float:
        one, all_pixels = torch.ones(1).double(), torch.full((1,), largest).double()
        return float(attention_rounding(layer.values(), Sums(one, all_pixels, one, 0 * one, 1.0), 0.1))

    assert bound(one_hot, 3.0) == pytest.approx(0.1, rel=CLOSE)
    assert bound(soft, 3.0) == pytest.approx(0.3, rel=CLOSE)
    assert bound(one_hot, 3.0e38) == pytest.approx(0.1, rel=CLOSE)
    assert bound(one_hot, 3.2e38) == math.inf


def test_a_sum_that_may_be_the_largest_number_overflows() -> None:
    soft, one_hot, most = layer_of(2.0, torch.float32), layer_of(None, torch.float32), torch.finfo(torch.float32).max
    below = math.nextafter(most, 0)
    one = torch.ones(1).double()

    def is_finite(layer: SelfAttention2d, *, read: float = 1.0, largest: float = 1.0, input: float = 1.0) -> bool:
        found = attention_rounding(layer.values(), Sums(read * one, largest * one, one, 0 * one, input), 0.0)
        return bool(found.isfinite().all())

    assert is_finite(soft, largest=below, input=below)
    assert is_finite(one_hot, read=below, largest=below, input=math.inf)
    assert not is_finite(soft, largest=most)
    assert not is_finite(soft, input=most)
    assert not is_finite(one_hot, read=most)
    assert not is_finite(one_hot, largest=most)
    assert is_finite(layer_of(math.nextafter(most / 2**60, 0), torch.float64))
    assert not is_finite(layer_of(most / 2**60, torch.float32))


def test_gamma_is_that_of_the_roundoff_of_a_precision() -> None:
    for dtype, unit in UNITS.items():
        assert unit_roundoff(dtype) == unit
    assert gamma(3, 0.125) == 3 / 5
    assert gamma(8, 0.125) == gamma(9, 0.125) == gamma(15, 0.125) == math.inf


def test_attention_flatter_than_a_limit_has_no_bound() -> None:
    assert math.isfinite(engine_error(layer_of(SMALLEST_ALPHA, torch.float64).values(), "separable"))
    assert engine_error(layer_of(0.9 * SMALLEST_ALPHA, torch.float64).values(), "separable") == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.0625, 0.07, 0.5, 2.0, 9.3])
def test_no_more_keys_weigh_something_than_are_counted(alpha: float, dtype: torch.dtype) -> None:
    """In a grid of any size: here one that reaches farther than any weight."""
    margin = math.ceil(math.sqrt(750 / alpha)) if dtype == torch.float64 else math.ceil(math.sqrt(110 / alpha))
    layer = SelfAttention2d(ConvSpec(1, 1, kernel_size=(1, 1)), alpha=alpha, dtype=dtype)
    maps = layer.attention_probabilities((2 * margin + 1, 2 * margin + 1), queries=[(margin, margin)])
    weighing = int(maps.count_nonzero())
    assert weighing <= weighing_keys(alpha, unit_roundoff(dtype), axes=2)
    assert 0.7 * weighing_keys(alpha, unit_roundoff(dtype), axes=2) <= 4 / math.pi * weighing  # a disc in a square


def test_attention_with_too_many_keys_to_add_up_has_no_bound() -> None:
    """The claim key-accumulation is for 1 / (4 u) keys that weigh something: 2^22 in single precision."""
    fewer, more = 1.01 * 2.0**-10, 1.01 * 2.0**-11
    alphas = {alpha: engine_error(layer_of(alpha, torch.float32).values(), "literal") for alpha in (fewer, more)}
    heads = layer_of(1.0, torch.float32).spec.num_heads
    counted = {alpha: heads * weighing_keys(alpha, unit_roundoff(torch.float32), axes=2) for alpha in alphas}
    assert counted[fewer] <= 2**22 < counted[more]
    assert {alpha: math.isfinite(error) for alpha, error in alphas.items()} == {fewer: True, more: False}


def test_what_is_counted_as_rounding_outward_covers_two_to_the_22_operations_and_not_many_more() -> None:
    with mp.workdps(DIGITS):
        unit = mpf(unit_roundoff(torch.float64))
        assert (1 + unit) ** (2**22) < OUTWARD < (1 + unit) ** (2**23 + 1)


@pytest.mark.parametrize(("dtype", "vanishes"), [(torch.float32, 105), (torch.float64, 747)])
def test_keys_are_counted_as_far_as_their_weight_can_be_more_than_zero(vanishes: int, dtype: torch.dtype) -> None:
    """A ten pixels' distance, where alpha times 100 is within 1 of what an exponential still tells from 0."""
    unit = unit_roundoff(dtype)
    for axes in (1, 2, 3):
        assert weighing_keys(vanishes / 100.001, unit, axes=axes) == 21**axes
        assert weighing_keys(vanishes / 99.999, unit, axes=axes) == 19**axes


def reach(radius: float) -> SelfAttention1d:
    """A layer of which a head looks so many pixels away, with an alpha that is no power of two."""
    layer = SelfAttention1d(ConvSpec(1, 1, kernel_size=(1,)), alpha=3.0)
    layer.set_positions(centers=[[radius]])
    return layer


def test_scores_that_err_by_a_fifth_or_more_have_no_bound() -> None:
    """Exponentials then err by a quarter: 1.25 times 5 u alpha 3 reach^2 and next to nothing."""
    limit = math.sqrt(0.2 / (5 * 2.0**-53 * 3.0 * 3))
    assert 0.5 < engine_error(reach(0.999 * limit).values(), "literal") < 1
    for beyond in (1.001, 1.5):
        assert engine_error(reach(beyond * limit).values(), "literal") == math.inf


@pytest.mark.parametrize("alpha", [1.0, 2.0**-6, 0.01])
def test_soft_attention_has_no_error_in_the_literal_engine_where_its_scores_are_not_known_to_be_exact(
    alpha: float,
) -> None:
    def error(dilation: int) -> float:
        return LiteralEngine().error(attention_from_conv(nn.Conv1d(1, 1, 2, dilation=dilation), alpha=alpha).values())

    assert error(2**20) < 1e-2
    assert (error(2**25) < 1e-2) == (alpha != 0.01)  # exact for powers of two only
    assert error(2**25 + 4) == math.inf
