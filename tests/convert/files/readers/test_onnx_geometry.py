"""The geometry of a node is the padding, the stride and the dilation that ONNX's standard gives its attributes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from conv2attn.convert.files.readers.onnx.geometry import plain_geometry, transposed_geometry
from conv2attn.convert.files.readers.onnx.nodes import Node
from conv2attn.convert.size import Size
from conv2attn.convert.spec import ConvSpec

AXES = st.integers(1, 3)
DEFAULTS = {"stride": [1, 1], "dilation": [1, 1], "groups": 1}


def node(**attributes: object) -> Node:
    return cast(Node, SimpleNamespace(attributes=attributes))


def spec(geometry: dict[str, object] | str, kernel: list[int]) -> ConvSpec:
    assert isinstance(geometry, dict)
    return ConvSpec.from_json({**geometry, "in_channels": 1, "out_channels": 1, "kernel_size": kernel, "bias": False})


@given(AXES.flatmap(lambda n: st.tuples(*[st.lists(st.integers(1, 4), min_size=n, max_size=n)] * 5)))
@example(([3, 5], [1, 1], [1, 1], [1, 2], [1, 2]))
@example(([2, 4], [1, 1], [1, 1], [0, 1], [1, 2]))
@example(([2, 4], [1, 2], [1, 1], [0, 1], [1, 2]))
@example(([2, 4], [1, 1], [1, 1], [1, 2], [0, 1]))
@example(([2, 2], [1, 1], [3, 2], [1, 1], [2, 1]))
@example(([5, 4], [1, 1], [1, 1], [1, 1], [2, 2]))
@example(([5, 4], [1, 1], [1, 1], [3, 1], [2, 2]))
@example(([5, 4], [1, 1], [1, 1], [2, 1], [1, 2]))
@example(([5, 4], [1, 1], [1, 1], [2, 1], [3, 2]))
def test_explicit_pads_are_what_the_geometry_pads(numbers: tuple[list[int], ...]) -> None:
    kernel, stride, dilation, before, after = numbers
    given = node(strides=stride, dilations=dilation, pads=before + after, group=1)
    found = spec(plain_geometry(given, kernel), kernel)
    assert [list(pair) for pair in found.pads] == [list(pair) for pair in zip(before, after, strict=True)]
    assert (list(found.stride), list(found.dilation), found.groups) == (stride, dilation, 1)


@given(
    AXES.flatmap(lambda n: st.tuples(*[st.lists(st.integers(1, 4), min_size=n, max_size=n)] * 3)),
    st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
)
@example(([2], [1], [1]), "SAME_UPPER")
@example(([2], [1], [1]), "SAME_LOWER")
@example(([3], [1], [1]), "SAME_LOWER")
@example(([3], [2], [1]), "SAME_UPPER")
def test_automatic_pads_have_their_odd_pixel_on_the_side_that_they_are_named_for(
    numbers: tuple[list[int], ...], automatic: str
) -> None:
    kernel, stride, dilation = numbers
    geometry = plain_geometry(node(strides=stride, dilations=dilation, auto_pad=automatic), kernel)
    assert isinstance(geometry, dict)
    if geometry["padding"] != "same":
        assert geometry["padding"] == automatic.lower()
        return
    assert stride == [1] * len(kernel)
    totals = [step * (taps - 1) for step, taps in zip(dilation, kernel, strict=True)]
    pads = [(total // 2, total - total // 2) for total in totals]
    if automatic == "SAME_LOWER":
        assert all(before == after for before, after in pads)
    assert [tuple(pair) for pair in spec(geometry, kernel).pads] == pads


def test_an_even_same_padding_at_stride_1_is_the_word_that_torch_has() -> None:
    for automatic in ("SAME_UPPER", "SAME_LOWER"):
        assert plain_geometry(node(auto_pad=automatic), [3, 5]) == {**DEFAULTS, "padding": "same"}
    assert plain_geometry(node(auto_pad="SAME_UPPER"), [2, 5]) == {**DEFAULTS, "padding": "same"}
    assert plain_geometry(node(auto_pad="SAME_LOWER"), [2, 5]) == {**DEFAULTS, "padding": "same_lower"}
    assert plain_geometry(node(pads=[0, 1, 1, 2]), [2, 4]) == {**DEFAULTS, "padding": "same"}


@pytest.mark.parametrize("attributes", [{}, {"auto_pad": "NOTSET"}, {"auto_pad": "VALID"}])
def test_what_is_not_given_has_the_standard_s_default(attributes: dict[str, Any]) -> None:
    assert plain_geometry(node(**attributes), [3, 2]) == {**DEFAULTS, "padding": [0, 0]}
    transposed = {"padding": [0, 0], "output_padding": [0, 0], "transposed": True}
    assert transposed_geometry(node(**attributes), [3, 2]) == {**DEFAULTS, **transposed}


def test_valid_means_no_pads_whatever_else_is_given() -> None:
    assert plain_geometry(node(auto_pad="VALID", pads=[1, 1, 1, 1]), [3, 2]) == {**DEFAULTS, "padding": [0, 0]}


@given(AXES.flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 3)))
@example(([1, 2], [1, 2], [0, 0]))
@example(([1, 2], [0, 2], [1, 0]))
def test_output_padding_is_what_is_added_and_what_is_not_cut_at_the_end(numbers: tuple[list[int], ...]) -> None:
    before, after, added = numbers
    kernel = [3] * len(before)
    attributes = {"pads": before + after, "output_padding": added, "group": 2, "strides": [4] * len(before)}
    geometry = transposed_geometry(node(**attributes), kernel)
    assert isinstance(geometry, dict)
    kept = geometry["output_padding"]
    assert isinstance(kept, list)
    assert (geometry["padding"], geometry["groups"], geometry["transposed"]) == (before, 2, True)
    assume(0 <= min(kept) <= max(kept) < 4)  # others are refused, as the stride is 4
    found = ConvSpec.from_json(
        {**geometry, "in_channels": 2, "out_channels": 2, "kernel_size": kernel, "bias": False}
    ).output_size(Size(*[5] * len(before)))
    # https://onnx.ai/onnx/operators/onnx__ConvTranspose.html: stride (input - 1) + output_padding + span - pads
    lengths = [4 * (5 - 1) + more + 3 - one - other for more, one, other in zip(added, before, after, strict=True)]
    assert list(found) == lengths


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"dilations": [1]}, "dilations are not one number for each axis"),
        ({"dilations": [1, 1, 1]}, "dilations are not one number for each axis"),
        ({"dilations": 1}, "dilations are not one number for each axis"),
        ({"pads": [1, 1]}, "padding is not one number for each end of each axis"),
        ({"pads": [1] * 6}, "padding is not one number for each end of each axis"),
        ({"pads": 1}, "padding is not one number for each end of each axis"),
    ],
)
def test_numbers_for_other_axes_are_refused(attributes: dict[str, Any], reason: str) -> None:
    refused = plain_geometry(node(**attributes), [3, 3])
    assert isinstance(refused, str)
    assert reason in refused


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"output_shape": [4, 4]}, "output_shape"),
        ({"auto_pad": "SAME_UPPER"}, "auto_pad"),
        ({"auto_pad": "SAME_LOWER"}, "auto_pad"),
        ({"pads": [1, 1]}, "each end of each axis"),
        ({"output_padding": [1]}, "each end of each axis"),
        ({"output_padding": [1, 1, 1]}, "each end of each axis"),
        ({"output_padding": 1}, "each end of each axis"),
    ],
)
def test_a_transposed_geometry_that_torch_has_not_is_refused(attributes: dict[str, Any], reason: str) -> None:
    refused = transposed_geometry(node(**attributes), [3, 3])
    assert isinstance(refused, str)
    assert reason in refused
