"""Convolutions with paddings that PyTorch's classes do not have are converted and come back like any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from conv2attn.convert import ConvSpec, attention_from_conv, conv_from_attention
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.errors import UnsupportedLayerError
from conv2attn.convert.spec import Convolution, reversed_pads
from conv2attn.convert.subclasses.padded import PADDED, convolution, spec_of
from tests.integers import integers, with_integers

NUMBERS = st.integers(1, 3)


@st.composite
def uneven_specs(draw: st.DrawFn) -> ConvSpec:
    """Geometries whose padding is a pair for each axis, or depends on the input's size."""
    axes = draw(NUMBERS)
    pairs = st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * axes)
    lengths = st.tuples(*[NUMBERS] * axes)
    padding: Any = draw(pairs | st.sampled_from(["same_upper", "same_lower"]))
    return ConvSpec(2, 4, draw(lengths), draw(lengths), draw(lengths), padding, groups=draw(st.sampled_from([1, 2])))


@st.composite
def cropped_specs(draw: st.DrawFn) -> ConvSpec:
    """Geometries of transposed convolutions that crop a pair of numbers along each axis."""
    axes = draw(st.integers(1, 2))
    pairs = draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * axes))
    kernel, stride, dilation = (draw(st.tuples(*[NUMBERS] * axes)) for _ in range(3))
    added = tuple(draw(st.integers(0, max(pair) - 1)) for pair in zip(stride, dilation, strict=True))
    return ConvSpec(
        *(2, 4, kernel, stride, dilation, pairs),
        groups=draw(st.sampled_from([1, 2])),
        transposed=True,
        output_padding=added,
    )


def check_the_way_there_and_back(spec: ConvSpec, conv: Convolution, x: Tensor, expected: Tensor) -> None:
    """The convolution, its attention in every engine, and the convolution that comes back give the same numbers."""
    assert torch.equal(conv(x), expected)
    assert torch.equal(conv(x[0]), expected[0])
    for engine in ENGINES:
        layer = attention_from_conv(conv, engine=engine)
        assert torch.equal(layer(x), expected), engine
    back = conv_from_attention(layer)
    assert type(back) is PADDED[spec.axes, spec.transposed]
    assert spec_of(back) == spec
    assert torch.equal(back(x), expected)


@given(uneven_specs())
def test_what_is_padded_is_what_the_attention_attends_to(spec: ConvSpec) -> None:
    conv = with_integers(convolution(spec, dtype=torch.float64))
    x = integers(2, 2, *(reach + 3 for reach in spec.reach), dtype=torch.float64)
    function = (F.conv1d, F.conv2d, F.conv3d)[spec.axes - 1]
    padded = F.pad(x, reversed_pads(spec.pads_at(x.shape[2:])))
    expected = function(padded, conv.weight, conv.bias, spec.stride, 0, spec.dilation, spec.groups)
    check_the_way_there_and_back(spec, conv, x, expected)


@given(cropped_specs())
@example(
    ConvSpec(2, 4, (2, 1, 3), (1, 2, 1), padding=((0, 1), (1, 0), (0, 2)), transposed=True, output_padding=(0, 1, 0))
)
def test_what_is_cropped_differently_at_both_ends_is_what_the_attention_leaves_out(spec: ConvSpec) -> None:
    conv = with_integers(convolution(spec, dtype=torch.float64))
    x = integers(2, 2, *(5, 6, 4)[: spec.axes], dtype=torch.float64)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spec.axes - 1]
    numbers = (spec.stride, 0, spec.output_padding, spec.groups, spec.dilation)
    expected = function(x, conv.weight, conv.bias, *numbers)
    for axis, pair in enumerate(spec.padding):
        assert isinstance(pair, tuple)
        before, after = pair
        expected = expected.narrow(2 + axis, before, expected.shape[2 + axis] - before - after)
    check_the_way_there_and_back(spec, conv, x, expected)


def test_a_geometry_changed_after_it_was_made_is_refused() -> None:
    conv = convolution(ConvSpec(1, 1, (2, 2), padding=((1, 0), (0, 0))))
    conv.stride = (2, 2)
    with pytest.raises(UnsupportedLayerError, match="attributes were changed"):
        attention_from_conv(conv)
