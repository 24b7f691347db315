"""The certificate holds in exact arithmetic, and is computed from its derivation."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    SelfAttention2d,
    attention_from_conv,
    certify,
    certify_data,
    measure_input,
)
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.rounding import gamma, unit_roundoff
from conv2attn.convert.bounds.tail import softmax_tail, tail_per_unit
from conv2attn.convert.certificate.layer import padded_range
from conv2attn.convert.errors import GeometryError
from conv2attn.convert.heads.encoding import key_positions
from conv2attn.convert.spec import CONVOLUTIONS, Convolution, PaddingMode
from conv2attn.proofs.campaign.strategies import conv_specs, convolutions_with_input
from tests.positions import move_center

SPEC = ConvSpec(3, 4, kernel_size=(3, 2), padding=(1, 1))
CLOSE = 1e-8  # what the certificate adds for its own rounding, and what underflow adds


def exact_output(conv: Convolution, x: Tensor, alpha: float | None) -> mpmath.matrix:
    """Attention (or, for alpha None, convolution) of one image in 60 digits: [out_channels, queries]."""
    layer = attention_from_conv(conv)
    spec, padded = layer.spec, layer.spec.pad(x)[0]
    rows, columns = spec.query_positions(Size(*x.shape[2:]))
    keys = [tuple(map(int, key)) for key in key_positions(Size(*padded.shape[1:]), like=x)]
    queries = [(i, j) for i in rows for j in columns]
    per_group = spec.in_channels // spec.groups
    output = mpmath.matrix(spec.out_channels, len(queries))
    for number, (i, j) in enumerate(queries):
        for head, (row, column) in enumerate(spec.tap_offsets):
            target = (i + row, j + column)
            distances = {key: (key[0] - target[0]) ** 2 + (key[1] - target[1]) ** 2 for key in keys}
            weights = {key: mpmath.exp(-alpha * d) if alpha else mpmath.mpf(d == 0) for key, d in distances.items()}
            total = mpmath.fsum(weights.values())
            read = [
                mpmath.fdot((w / total, mpmath.mpf(padded[c, k[0], k[1]].item())) for k, w in weights.items())
                for c in range(spec.in_channels)
            ]
            taps = conv.weight[:, :, head // spec.kernel_size[1], head % spec.kernel_size[1]]
            for o in range(spec.out_channels):
                first = o // (spec.out_channels // spec.groups) * per_group
                output[o, number] += mpmath.fdot(
                    (mpmath.mpf(taps[o, c].item()), read[first + c]) for c in range(per_group)
                )
    for o in range(spec.out_channels if conv.bias is not None else 0):
        assert conv.bias is not None
        for number in range(len(queries)):
            output[o, number] += mpmath.mpf(conv.bias[o].item())
    return output


def largest_difference(a: mpmath.matrix, b: mpmath.matrix) -> float:
    return float(max(abs(a[i, j] - b[i, j]) for i in range(a.rows) for j in range(a.cols)))


def as_matrix(y: Tensor) -> mpmath.matrix:
    return mpmath.matrix(y[0].flatten(1).double().tolist())


@pytest.mark.parametrize(
    ("engine", "alpha", "dtype"),
    [
        ("literal", None, torch.bfloat16),
        ("literal", 0.5, torch.float32),
        ("literal", 3.0, torch.float64),
        ("separable", None, torch.float32),
        ("separable", 3.0, torch.float16),
        ("factored", None, torch.float64),
        ("factored", 0.5, torch.bfloat16),
        ("factored", 3.0, torch.float32),
        ("sdpa", None, torch.float16),
    ],
    ids=str,
)
@settings(max_examples=3)
@given(data=st.data())
def test_each_part_bounds_what_it_says_in_exact_arithmetic(
    engine: str, alpha: float | None, dtype: torch.dtype, data: st.DataObject
) -> None:
    specs = conv_specs(max_kernel=2, max_channels=2)
    conv, x = data.draw(convolutions_with_input(dtype=dtype, specs=specs))
    layer = attention_from_conv(conv, alpha=alpha, engine=engine)
    certificate = certify_data(layer, [x], engine=engine)
    with torch.no_grad(), mpmath.workdps(60):
        convolution = exact_output(conv, x, None)
        attention = exact_output(conv, x, layer.alpha[0].item())
        unseen = 1e-50  # fewer than 1000 terms below 1e4, each of 60 digits
        assert largest_difference(attention, convolution) <= certificate.tail + unseen
        assert largest_difference(as_matrix(layer(x)[:1]), attention) <= certificate.rounding_attention
        computed = conv(x)
        assert largest_difference(as_matrix(computed[:1]), convolution) <= certificate.rounding_convolution


def test_the_tail_grows_with_what_the_input_can_vary() -> None:
    layer = SelfAttention2d(SPEC, alpha=1.0)
    narrow = certify(layer, input_range=(-1, 1))
    wide = certify(layer, input_range=(-2, 2))
    per_channel = certify(layer, input_range=([-1, -1, -1], [1, 1, 1]))
    assert wide.tail == 2 * narrow.tail
    assert per_channel == narrow
    assert narrow.bound == max(narrow.per_channel)
    assert narrow.tail == pytest.approx(2 * tail_per_unit(layer.values()), rel=2**-25)


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_the_bound_is_the_sum_of_its_parts(alpha: float | None) -> None:
    spec = ConvSpec(3, 1, kernel_size=(3, 2))
    certificate = certify(SelfAttention2d(spec, alpha=alpha), input_range=(0, 1))
    parts = (certificate.tail, certificate.rounding_attention, certificate.rounding_convolution)
    assert (certificate.tail > 0.1) == (alpha is not None)
    assert certificate.bound == pytest.approx(sum(parts), rel=CLOSE, abs=0)
    assert certificate.per_channel == (certificate.bound,)


def test_rounding_is_relative_to_the_largest_sum_that_the_range_allows_and_the_bias() -> None:
    layer = SelfAttention2d(ConvSpec(1, 1, kernel_size=(1, 1)), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.fill_(-2)
        assert layer.bias is not None
        layer.bias.fill_(-3)
    certificate = certify(layer, input_range=(-5, 4), engine="literal")
    assert certificate.rounding_convolution == pytest.approx(13 * gamma(2, 2.0**-53), rel=CLOSE, abs=0)
    assert certificate.rounding_attention == certificate.rounding_convolution


@pytest.mark.parametrize(("alpha", "smaller"), [(None, 0.25), (1.0, 1.0)])
def test_sums_that_were_measured_count_for_whatever_reads_the_same_pixels(alpha: float | None, smaller: float) -> None:
    layer = SelfAttention2d(ConvSpec(2, 2, kernel_size=(2, 2), bias=False), alpha=alpha, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.fill_(1)
    in_range = certify(layer, input_range=(0, 1))
    measured = certify(layer, input_range=(0, 1), sums=torch.tensor([2.0, 2.0]))
    above = certify(layer, input_range=(0, 1), sums=torch.tensor([9.0, 9.0]))
    assert measured.rounding_convolution == pytest.approx(0.25 * in_range.rounding_convolution, rel=CLOSE, abs=0)
    assert measured.rounding_attention == pytest.approx(smaller * in_range.rounding_attention, rel=CLOSE, abs=0)
    assert above == in_range


def test_zeros_belong_to_the_range_where_padding_adds_them_and_nowhere_else() -> None:
    zeros = ConvSpec(2, 1, kernel_size=(3, 2), padding=(0, 1))
    assert [end.tolist() for end in padded_range(zeros, (5, 6))] == [[0, 0], [6, 6]]
    for mode in get_args(PaddingMode)[1:]:
        assert [end.tolist() for end in padded_range(replace(zeros, padding_mode=mode), (5, 6))] == [[5, 5], [6, 6]]
    bare, padded = ConvSpec(1, 1, kernel_size=(1, 1)), ConvSpec(1, 1, kernel_size=(2, 2), padding=(1, 0))
    assert tuple(map(float, padded_range(bare, (-6, -5)))) == (-6, -5)
    assert tuple(map(float, padded_range(padded, (-6, -5)))) == (-6, 0)
    by_size = ConvSpec(1, 1, kernel_size=(2, 2), padding="same_upper")
    assert tuple(map(float, padded_range(by_size, (-6, -5)))) == (-6, 0)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ((1, 0), "got 1 and 0"),
        ((0, float("nan")), "got 0 and nan"),
        (([0, 0], [1, 1]), "two sequences of 3; got 2 numbers and 2 numbers"),
        (([0, 0, 0], 1, 2), "must be a pair"),
        (1, "must be a pair"),
    ],
)
def test_a_range_that_is_none_is_refused(wrong: Any, reason: str) -> None:
    with pytest.raises(ConversionError, match=f"input_range.*{reason}"):
        certify(SelfAttention2d(SPEC), input_range=wrong)


@pytest.mark.parametrize(("name", "value"), [("weight", float("nan")), ("bias", float("inf"))])
def test_nothing_is_certified_for_weights_that_are_not_finite(name: str, value: float) -> None:
    layer = SelfAttention2d(SPEC)
    with torch.no_grad():
        layer.get_parameter(name).view(-1)[0] = value
    with pytest.raises(ConversionError, match="NaN or infinite"):
        certify(layer, input_range=(0, 1))


def test_nothing_is_certified_for_a_layer_that_is_no_convolution() -> None:
    moved, content, learned = SelfAttention2d(SPEC), SelfAttention2d(SPEC), SelfAttention2d(SPEC)
    with torch.no_grad():
        move_center(moved, 0, 1)
    content.add_content(2)
    learned.set_axis_scores(torch.zeros(6, 7), torch.zeros(6, 7))
    for layer in (moved, content, learned):
        with pytest.raises(ConversionError, match="is certified"):
            certify(layer, input_range=(0, 1))


def test_a_half_precision_output_that_could_overflow_has_no_bound() -> None:
    layer = SelfAttention2d(ConvSpec(1, 1, kernel_size=(1, 1)), dtype=torch.float16)
    with torch.no_grad():
        layer.weight.fill_(100)
    assert certify(layer, input_range=(0, 600)).bound < 100
    assert certify(layer, input_range=(0, 700)).bound == float("inf")


def test_every_part_is_rounded_up_and_their_sum_once_more() -> None:
    layer = SelfAttention2d(ConvSpec(2, 1, kernel_size=(1, 2), bias=False), alpha=2.0, dtype=torch.float64)
    certificate = certify(layer, input_range=(0, 1))
    tail = float(softmax_tail(layer.values(), torch.ones(2, dtype=torch.float64)))
    outward = 1 + Fraction(1, 2**31)
    assert Fraction(certificate.tail) > Fraction(tail) * outward
    parts = certificate.tail, certificate.rounding_attention, certificate.rounding_convolution
    assert Fraction(certificate.bound) > sum(map(Fraction, parts)) * outward


# Measured input


@given(convolutions_with_input())
def test_what_was_measured_holds_of_the_padded_input(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    layer = attention_from_conv(conv)
    measured, padded = measure_input(layer, torch.split(x, 1)), layer.spec.pad(x).double()
    assert torch.equal(measured.low, padded.amin((0, 2, 3)))
    assert torch.equal(measured.high, padded.amax((0, 2, 3)))
    absolute = nn.functional.conv2d(
        padded.abs(), conv.weight.double().abs(), None, conv.stride, 0, conv.dilation, conv.groups
    )
    assert (absolute.amax((0, 2, 3)) <= measured.sums).all()


@given(convolutions_with_input())
def test_a_certificate_from_data_is_at_most_that_of_its_range(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    layer = attention_from_conv(conv)
    measured = certify_data(layer, [x])
    assert measured.bound <= certify(layer, input_range=(x.min().item(), x.max().item())).bound
    assert (layer(x) - conv(x)).abs().max() <= measured.bound


def test_nothing_is_measured_without_finite_values() -> None:
    layer = SelfAttention2d(SPEC)
    with pytest.raises(ConversionError, match="no batch"):
        measure_input(layer, [])
    with pytest.raises(ConversionError, match="NaN or infinite"):
        measure_input(layer, [torch.full((1, 3, 4, 5), float("inf"))])


@pytest.mark.parametrize("axes", [1, 3])
def test_one_image_is_measured_as_a_batch_of_one_and_what_is_neither_is_refused(axes: int) -> None:
    layer = attention_from_conv(CONVOLUTIONS[axes, False](4, 3, 2))
    x = torch.rand(4, *(5, 3, 6)[:axes])
    one, batch = measure_input(layer, [x]), measure_input(layer, [x.unsqueeze(0)])
    assert all(torch.equal(getattr(one, name), getattr(batch, name)) for name in ("low", "high", "sums"))
    assert torch.equal(one.high, x.flatten(1).amax(1).double())
    for wrong in (x[:3], x[0], x.unsqueeze(0).unsqueeze(0), x.transpose(0, -1)):
        with pytest.raises(GeometryError, match="inputs must be"):
            measure_input(layer, [wrong])


def test_what_is_measured_in_several_batches_is_what_was_seen_in_any() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 1, bias=False))
    with torch.no_grad():
        layer.weight.fill_(-2)
    measured = measure_input(layer, [torch.full((1, 1, 1, 1), value) for value in (3.0, -5.0, 1.0)])
    assert (measured.low.item(), measured.high.item()) == (-5, 3)
    assert measured.input_range == (measured.low, measured.high)
    assert Fraction(measured.sums.item()) > 10
    assert measured.sums.item() == pytest.approx(10, rel=CLOSE)


@pytest.mark.parametrize("sums", [torch.ones(3), -torch.ones(4), torch.full((4,), float("nan"))])
def test_sums_that_are_none_are_refused(sums: Tensor) -> None:
    with pytest.raises(ConversionError, match="sums"):
        certify(SelfAttention2d(SPEC), input_range=(0, 1), sums=sums)


def test_under_autocast_only_a_layer_that_it_leaves_alone_is_certified() -> None:
    layer, double = SelfAttention2d(SPEC), SelfAttention2d(SPEC, dtype=torch.float64)
    expected = certify(double, input_range=(-1, 1))
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ConversionError, match=r"autocast to torch\.bfloat16 is on"):
            certify(layer, input_range=(-1, 1))
        assert certify(double, input_range=(-1, 1)) == expected
        with torch.autocast("cpu", enabled=False):
            certify(layer, input_range=(-1, 1))


def test_a_subnormal_weight_may_be_lost_with_all_that_it_reads_and_nothing_else() -> None:
    tiny = torch.finfo(torch.float32).smallest_normal
    conv = nn.Conv2d(1, 2, 1, bias=False)
    conv.weight.data = torch.tensor([tiny / 4, 2.0**-60]).view(2, 1, 1, 1)
    lost, kept = certify(attention_from_conv(conv), input_range=(0, 2.0**40)).per_channel
    assert 2.0**40 * tiny < lost < 5 * 2.0**40 * tiny
    assert kept < 2.0**-60 * 2.0**40 * 2.0**-20


def test_where_sums_could_overflow_the_bound_is_infinite() -> None:
    layer = SelfAttention2d(SPEC)
    assert certify(layer, input_range=(0, 3e38)).bound == float("inf")


def test_soft_attention_that_mixes_channels_first_rounds_three_times_in_half_precision() -> None:
    """The convolution, the smoothing and the bias are rounded to bfloat16 each."""
    spec = ConvSpec(2, 1, kernel_size=(1, 1))
    layer, unit = SelfAttention2d(spec, alpha=3.0, dtype=torch.bfloat16), unit_roundoff(torch.bfloat16)
    with torch.no_grad():
        layer.weight.fill_(1)
        assert layer.bias is not None
        layer.bias.zero_()
    rounding = certify(layer, input_range=(0, 1), engine="factored").rounding_attention
    assert 3 * unit * 2 <= rounding <= 3.1 * unit * 2


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_what_the_bias_adds_to_a_sum_is_rounded_too(alpha: float | None) -> None:
    weight = nn.Parameter(torch.ones(1, 3, 1, 2, dtype=torch.float64))
    spec = ConvSpec(3, 1, kernel_size=(1, 2))
    plain, biased = (
        certify(
            SelfAttention2d(spec, weight=weight, bias=nn.Parameter(torch.tensor([bias]).double()), alpha=alpha),
            input_range=(-1, 1),
        )
        for bias in (0.0, -12.0)
    )
    assert biased.rounding_attention == pytest.approx(3 * plain.rounding_attention, rel=CLOSE, abs=0)
    assert biased.rounding_convolution == pytest.approx(3 * plain.rounding_convolution, rel=CLOSE, abs=0)
    assert biased.outputs == pytest.approx(18, rel=CLOSE)
