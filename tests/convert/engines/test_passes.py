"""Attention along one axis has the same result as a table, as a stencil, and in any memory format."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff
from conv2attn.convert.engines import factored, passes, separable
from conv2attn.convert.engines.axes import AxisTable, without_far_keys
from conv2attn.convert.engines.base import pad_as_convolution
from conv2attn.convert.engines.factored import smoothing_matrix
from conv2attn.convert.engines.joint import JointStencil, JointTable, joint_forms
from conv2attn.convert.engines.passes import Axis, Passes
from conv2attn.convert.engines.stencil import Stencil
from conv2attn.convert.size import Size
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.evidence.strategies import convolutions_with_input

# What a form makes cost nothing, where a layer has it, and the others infinitely much.
FORMS = {"tables": "table_cost", "stencils": "shuffled_cost", "stencils, channels last": "stencil_cost"}
JOINT = {"one stencil": JointStencil, "one table": JointTable}


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """Any axis that a convolution can have."""
    zeros, stride, pixels = draw(st.integers(0, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 30))
    keys = pixels + 2 * zeros
    start = draw(st.integers(0, keys - 1))
    return Axis(keys, draw(st.integers(1, (keys - 1 - start) // stride + 1)), start, stride, zeros, 1, pixels)


def table_of(axis: Axis, alpha: float, center: float) -> Tensor:
    keys = torch.arange(axis.keys, dtype=torch.float64)
    targets = center + axis.start + axis.stride * torch.arange(axis.queries, dtype=torch.float64)
    return axis.seen((-alpha * (keys - targets.unsqueeze(1)).square()).softmax(-1))


def rounding(axis: Axis, alpha: float, center: float) -> float:
    """How far two ways to weigh the keys in double precision differ, relative to the weighted absolute sum.

    An exponent is three roundings off, each relative to the largest; then come exponentials, two sums, a quotient.
    """
    unit, largest = unit_roundoff(torch.float64), alpha * (2 * axis.keys + axis.stride + abs(center)) ** 2
    return 4 * math.expm1(6 * unit * largest) + 4 * gamma(4 * EXP_ULPS + 4 * axis.keys + 8, unit)


@example(Axis(keys=9, queries=9, start=0, stride=1, first=0, step=1, pixels=9), 0.5, 0.0)
@given(axes(), st.floats(0.01, 300), st.floats(-3, 9))
def test_a_stencil_is_its_table(axis: Axis, alpha: float, center: float) -> None:
    stencil = axis.stencil(alpha, center, torch.float64)
    if stencil is None:  # the target is far outside the image
        targets = center + axis.start + axis.stride * torch.arange(axis.queries, dtype=torch.float64)
        assert targets.min() < 0 or targets.max() > axis.keys - 1
        return
    table, x = table_of(axis, alpha, center), torch.randn(2, 3, axis.keys, axis.keys, dtype=torch.float64)
    relative, left_out = rounding(axis, alpha, center), unit_roundoff(torch.float64) * float(x.abs().max())
    rows, columns = axis.seen(x.mT).mT, axis.seen(x)
    for observed, expected, scale in (
        (stencil.rows_of(rows), table @ rows, table @ rows.abs()),
        (stencil.columns_of(columns), columns @ table.T, columns.abs() @ table.T),
    ):
        assert observed.shape == expected.shape
        assert ((observed - expected).abs() <= relative * scale + left_out).all()


@given(axes(), st.floats(0.01, 300), st.floats(-1, 3))
def test_a_stencil_leaves_out_what_weighs_next_to_nothing(axis: Axis, alpha: float, center: float) -> None:
    stencil = axis.stencil(alpha, center, torch.float32)
    if stencil is None:
        return
    reached = torch.zeros(axis.queries, axis.keys, dtype=torch.bool)
    first = axis.first - stencil.padding
    for query in range(axis.queries):
        start = axis.stride * query + first
        reached[query, max(start, 0) : max(start + len(stencil.weights), 0)] = True
    left_out = table_of(axis, alpha, center).masked_fill(axis.seen(reached), 0.0).sum(1)
    assert (left_out <= 2.0**-24 * (1 + rounding(axis, alpha, center))).all()


@given(st.integers(1, 60), st.floats(0.01, 300), st.sampled_from([torch.float32, torch.float64]))
def test_a_table_leaves_out_what_weighs_next_to_nothing(length: int, alpha: float, dtype: torch.dtype) -> None:
    table = smoothing_matrix(length, alpha, like=torch.zeros(1, dtype=dtype))
    near = without_far_keys(table, dtype)
    assert torch.equal(near[near != 0], table[near != 0])
    left_out, unit = (table - near).double(), unit_roundoff(dtype)
    assert (left_out.sum(1) <= unit).all()
    assert ((near != 0).sum(1) <= 2 * math.sqrt(math.log(4 / unit) / alpha) + 1).all()


@pytest.fixture(params=[*FORMS, *JOINT])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes every engine take its passes in one form, if the layer has it."""

    def joint(*arguments: Any, **options: Any) -> list[JointStencil | JointTable]:
        wanted = JOINT.get(request.param, ())
        return [replace(form, cost=-1.0) for form in joint_forms(*arguments, **options) if isinstance(form, wanted)]

    monkeypatch.setattr(factored, "joint_forms", joint)
    for engine in (factored, separable):
        monkeypatch.setattr(engine, "stencils_are_fast", lambda device, dtype: True)
    if request.param in JOINT:
        return str(request.param)
    honest, free = passes._Choice.of, FORMS[request.param]

    def only(*arguments: Any, **places: Any) -> passes._Choice:
        choice = honest(*arguments, **places)
        costs: dict[str, Any] = dict.fromkeys(FORMS.values(), math.inf) | {free: 0.0}
        return replace(choice, **costs if choice.stencils else {})

    monkeypatch.setattr(passes._Choice, "of", only)
    return str(request.param)


@settings(max_examples=25)  # for each of eight cases
@given(data=st.data())
def check_forms(engine: str, data: st.DataObject) -> None:
    conv, x = data.draw(convolutions_with_input(dtype=torch.float64))
    layer = attention_from_conv(conv, alpha=data.draw(st.sampled_from([0.5, 2.0, 7.7])), engine=engine)
    x.requires_grad_()
    cotangent = torch.randn_like(conv(x))
    observed = torch.autograd.grad(layer(x), [x, layer.weight], cotangent), layer(x)
    layer.engine = "literal"
    expected = torch.autograd.grad(layer(x), [x, layer.weight], cotangent), layer(x)
    magnitude = attention_from_conv(conv, alpha=float(layer.alpha[0]), engine="factored")
    with torch.no_grad():
        magnitude.weight.abs_()
        if magnitude.bias is not None:
            magnitude.bias.abs_()
    largest = x.detach().abs().requires_grad_()
    scale = torch.autograd.grad(magnitude(largest), [largest, magnitude.weight], cotangent.abs()), magnitude(largest)
    keys = math.prod(layer.spec.padded_size(Size(*x.shape[2:])))
    steps = 16 * EXP_ULPS + (8 + layer.num_heads) * keys + cotangent.numel() + conv.weight.numel()
    grid = layer.spec.padded_size(Size(*x.shape[2:]))
    farthest = math.hypot(*grid) + 2 * float(layer.centers.detach().abs().max())
    exponent = float(layer.alpha.detach().max()) * (2 * farthest) ** 2 * gamma(8, unit_roundoff(torch.float64))
    relative = 2 * gamma(steps, unit_roundoff(torch.float64)) + 4 * math.expm1(2 * exponent)  # scores are rounded, too
    # What each axis leaves out weighs at most u, of whatever pixel, times all weights, outputs or pixels it meets.
    weights, outputs, largest_pixel = conv.weight.abs().sum(), cotangent.abs().sum(), x.detach().abs().max()
    met = outputs * weights, outputs * largest_pixel, weights * largest_pixel
    for one, other, size, far in zip(
        [*observed[0], observed[1]], [*expected[0], expected[1]], [*scale[0], scale[1]], met, strict=True
    ):
        left_out = 2 * unit_roundoff(torch.float64) * far * (1 + relative)
        assert ((one - other).abs() <= relative * size + left_out).all()


@pytest.mark.parametrize("engine", ["factored", "separable"])
def test_every_form_agrees_with_the_literal_engine(engine: str, form: str) -> None:
    check_forms(engine)


def test_a_border_that_is_not_rescaled_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Stencil.of

    def unscaled(*arguments: float, **geometry: object) -> Stencil | None:
        stencil = honest(*arguments, **geometry)  # type: ignore[arg-type]
        return stencil and Stencil(stencil.weights, torch.ones_like(stencil.scale), stencil.stride, stencil.padding)

    monkeypatch.setattr(Stencil, "of", unscaled)
    with pytest.raises(AssertionError):
        test_a_stencil_is_its_table()


@pytest.mark.parametrize("engine", ["factored", "separable"])
@pytest.mark.parametrize("conv", [nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 8, 1), nn.Conv2d(8, 32, 1)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_result_lies_in_memory_as_that_of_the_convolution(
    engine: str, conv: nn.Conv2d, memory_format: torch.memory_format, form: str
) -> None:
    x = torch.randn(2, conv.in_channels, 9, 7).contiguous(memory_format=memory_format)
    layer = attention_from_conv(conv, alpha=1.0, engine=engine)
    assert layer(x).stride() == conv(x).stride()


@pytest.mark.parametrize(("alpha", "taps"), [(0.5, 11), (2.0, 5), (8.0, 3), (100.0, 1)])
def test_steep_layers_have_few_taps(alpha: float, taps: int) -> None:
    axis = Axis.of(ConvSpec(64, 64, (3, 3), padding=(1, 1)), Size(56, 56), 0)
    stencil = axis.stencil(alpha, 0.0, torch.float32)
    assert stencil is not None
    assert len(stencil.weights) == taps


@pytest.mark.parametrize("engine", ["factored", "separable"])
def test_images_of_one_channel_are_attended_as_others(engine: str) -> None:
    conv = nn.Conv2d(2, 1, (1, 8), stride=(1, 2), bias=False).requires_grad_(False)
    conv.weight.copy_(torch.randint(-3, 4, conv.weight.shape))
    x = torch.randint(-3, 4, (2, 2, 6, 9)).float()
    for layer in (conv, attention_from_conv(conv, engine=engine)):
        for layout in (torch.contiguous_format, torch.channels_last):
            expected = conv.double()(x.double()).float()
            assert torch.equal(layer.float()(x.contiguous(memory_format=layout)), expected)


@pytest.mark.parametrize("rows", [torch.rand(2, 1), torch.rand(1, 2).T, torch.rand(4, 3).T])
def test_a_joint_table_is_the_product_of_both_axes_whatever_their_strides(rows: Tensor) -> None:
    columns = torch.rand(3, 5)
    joint = JointTable.of(rows, columns, images=1, channels_last=False).table.probabilities
    expected = torch.einsum("qk,pl->qpkl", rows, columns)
    assert torch.equal(joint.view(expected.shape), expected)


SPECS: dict[str, tuple[ConvSpec, Size]] = {
    "sequence": (ConvSpec(1, 1, (3,), stride=(2,), padding=(1,)), Size(6)),
    "strided, dilated": (ConvSpec(1, 1, (3, 2), stride=(2, 3), dilation=(1, 2), padding=(2, 0)), Size(7, 9)),
    "padded more at the end": (ConvSpec(1, 1, (2, 4), padding="same"), Size(5, 4)),
    "circular": (ConvSpec(1, 1, (3, 3), padding=(1, 2), padding_mode="circular"), Size(5, 4)),
    "volume": (ConvSpec(1, 1, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 2)), Size(2, 5, 3)),
    "transposed": (ConvSpec(1, 1, (2, 3), stride=(2, 3), transposed=True), Size(3, 4)),
    "transposed, some pixels dropped": (
        ConvSpec(1, 1, (2, 2), stride=(1, 2), padding=(4, 5), output_padding=(0, 1), transposed=True),
        Size(9, 8),
    ),
    "transposed, as many keys before its pixels as between them": (
        ConvSpec(1, 1, (1, 1), stride=(2, 1), padding=(1, 0), output_padding=(1, 0), transposed=True),
        Size(3, 2),
    ),
    "transposed, more at the end": (
        ConvSpec(1, 1, (3, 2), stride=(1, 1), dilation=(2, 1), padding=(1, 0), output_padding=(1, 0), transposed=True),
        Size(4, 5),
    ),
    "transposed, all pixels dropped": (
        ConvSpec(1, 1, (1, 1), stride=(4, 1), padding=(1, 0), output_padding=(3, 0), transposed=True),
        Size(1, 3),
    ),
}


@pytest.mark.parametrize("case", SPECS)
def test_along_each_axis_the_keys_that_are_pixels_are_seen_and_the_others_are_zeros(case: str) -> None:
    spec, size = SPECS[case]
    x = 1 + torch.arange(math.prod(size)).double().view(1, 1, *size)
    seen, image = spec.pad(x), pad_as_convolution(spec, x)
    grid, total = spec.padded_size(size), seen.sum()
    for number, queries in enumerate(spec.query_positions(size)):
        axis = Axis.of(spec, size, number)
        assert [axis.start + axis.stride * query for query in range(axis.queries)] == list(queries)
        assert (axis.keys, axis.pixels) == (grid[number], image.shape[number + 2])
        seen = axis.seen(seen.movedim(number + 2, -1)).movedim(-1, number + 2)
        symmetric = axis.step == 1 and axis.keys - axis.pixels - axis.first == axis.first
        assert (axis.stencil(1.0, 0.0, torch.float32) is not None) == symmetric
    assert torch.equal(seen, image)
    assert seen.sum() == total


@pytest.mark.parametrize("size", [(5,), (5, 4), (2, 5, 4), (3, 2, 5, 4)])
def test_an_attention_is_applied_along_its_axis_and_no_other(size: tuple[int, ...]) -> None:
    tables = [[torch.randint(-9, 10, (n + 1, n)).double() for _ in range(2)] for n in size]
    passes_along = Passes(tuple(tuple(map(AxisTable.dense, part)) for part in tables), torch.contiguous_format)
    x = torch.randint(-9, 10, (2, 3, *size)).double()
    whole = x
    for axis, part in enumerate(tables):
        for number, table in enumerate(part):
            expected = torch.tensordot(x, table, dims=([axis + 2], [1])).movedim(-1, axis + 2)
            assert torch.equal(passes_along.along(axis, number, x), expected)
        whole = torch.tensordot(whole, part[0], dims=([axis + 2], [1])).movedim(-1, axis + 2)
    assert torch.equal(passes_along(x), whole)
    assert passes_along.nbytes == sum(8 * n * (n + 1) * 2 for n in size)
    assert passes_along.cost == 0
