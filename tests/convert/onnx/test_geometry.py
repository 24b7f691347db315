"""The geometry of a node is what ONNX Runtime computes with its attributes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, reject
from hypothesis import strategies as st
from onnx import ModelProto, helper

from conv2attn.convert import attention_from_conv
from conv2attn.convert.onnx.convolutions import RefusedError, transposed_geometry
from tests.onnx_files import convolution_in, network, port, read, run, small_integers, tensor

SAME = ("SAME_UPPER", "SAME_LOWER")


def single(operator: str, shape: tuple[int, ...], weight: tuple[int, ...], **attributes: Any) -> ModelProto:
    """A model of one node."""
    node = helper.make_node(operator, ["x", "w"], ["y"], "conv", **attributes)
    return network([node], [tensor("w", small_integers(*weight))], inputs=[port("x", shape)], outputs=[port("y", None)])


def assert_computes(model: ModelProto, shape: tuple[int, ...]) -> None:
    """The layer that is read, and its attention, compute what ONNX Runtime computes."""
    x = small_integers(*shape)
    (wanted,) = run(model, x=x)
    with tempfile.TemporaryDirectory() as folder:
        conv = convolution_in(model, "conv", Path(folder, "m.onnx"))
    assert torch.equal(conv(torch.from_numpy(x)), torch.from_numpy(wanted))
    assert torch.equal(attention_from_conv(conv)(torch.from_numpy(x)), torch.from_numpy(wanted))


def numbers(axes: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=axes, max_size=axes)


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes of a node along one or two axes, and its kernel."""
    axes = draw(st.integers(1, 2))
    found: dict[str, Any] = {"kernel": draw(numbers(axes, 1, 4)), "strides": draw(numbers(axes, 1, 3))}
    found |= {"dilations": draw(numbers(axes, 1, 2)), "group": draw(st.sampled_from([1, 2]))}
    return found | draw(
        numbers(2 * axes, 0, 2).map(lambda pads: {"pads": pads}) | st.sampled_from([{"auto_pad": a} for a in SAME])
    )


@given(nodes())
@example({"kernel": [2, 4], "pads": [0, 1, 1, 2]})
@example({"kernel": [2, 3], "pads": [1, 0, 0, 0], "strides": [1, 2]})
@example({"kernel": [3, 2], "auto_pad": "VALID"})
@example({"kernel": [3, 2, 1], "pads": [1, 0, 0, 0, 1, 1], "strides": [2, 1, 1]})
def test_a_conv_is_what_onnx_runtime_computes(attributes: dict[str, Any]) -> None:
    kernel = attributes["kernel"]
    shape = (2, 4, *(9, 8, 5)[: len(kernel)])
    unread = ("kernel", "dilations") if "auto_pad" in attributes else ("kernel",)  # not both in ONNX Runtime
    others = {name: value for name, value in attributes.items() if name not in unread}
    model = single("Conv", shape, (6, 4 // attributes.get("group", 1), *kernel), **others)
    assert_computes(model, shape)


@given(nodes(), st.data())
@example({"kernel": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, None)
@example({"kernel": [10], "strides": [5], "pads": [2, 3]}, None)
@example({"kernel": [8], "strides": [4], "pads": [0, 4]}, None)
@example({"kernel": [3], "strides": [2], "pads": [3, 0]}, None)
@example({"kernel": [4], "strides": [3], "auto_pad": "SAME_LOWER"}, None)
@example({"kernel": [3], "strides": [2], "pads": [1, 1], "output_padding": [1]}, None)
def test_a_transposed_conv_is_what_onnx_runtime_computes(attributes: dict[str, Any], data: Any) -> None:
    kernel, strides = attributes["kernel"], attributes.get("strides", [1] * len(attributes["kernel"]))
    others = {name: value for name, value in attributes.items() if name != "kernel"}
    if data is not None:
        others["output_padding"] = [data.draw(st.integers(0, stride - 1)) for stride in strides]
    shape = (2, 4, *(5, 6)[: len(kernel)])
    try:
        transposed_geometry(others, kernel, None)
    except RefusedError:
        reject()
    assert_computes(single("ConvTranspose", shape, (4, 3, *kernel), **others), shape)


@pytest.mark.parametrize(
    ("automatic", "wanted"),
    [("NOTSET", [9, 14]), ("NOTSET", [12, 15]), ("SAME_UPPER", [10, 13]), ("SAME_LOWER", [8, 12])],
)
def test_an_output_shape_says_what_is_cropped(automatic: str, wanted: list[int]) -> None:
    shape = (1, 2, 5, 6)
    attributes = {"strides": [2, 2], "auto_pad": automatic, "output_shape": wanted}
    assert_computes(single("ConvTranspose", shape, (2, 3, 3, 4), **attributes), shape)


def test_an_output_shape_of_an_inferred_input_is_read_and_of_an_open_one_refused(tmp_path: Path) -> None:
    for size, is_known in (([5, 6], True), (["h", "w"], False)):
        nodes = [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("ConvTranspose", ["r", "w"], ["y"], "conv", strides=[2, 2], output_shape=[9, 12]),
        ]
        weight, x = tensor("w", small_integers(2, 3, 3, 3)), port("x", [1, 2, *size])
        model = network(nodes, [weight], inputs=[x], outputs=[port("y", None)])
        layer = read(model, tmp_path / "m.onnx")[1]["conv"]
        assert (layer.spec is not None) == is_known
        assert is_known or "which the file leaves open" in str(layer.problem)


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("Conv", {"kernel_shape": [3, 2]}, "its weight does not have the shape of its kernel"),
        ("Conv", {"group": 3}, "groups must divide"),
        ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": [4, 4]}, "implementations of auto_pad disagree"),
    ],
)
def test_attributes_that_no_convolution_has_are_refused_by_name(
    operator: str, attributes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    layer = read(single(operator, (1, 2, 5, 6), (2, 2, 3, 3), **attributes), tmp_path / "m.onnx")[1]["conv"]
    assert layer.spec is None
    assert reason in str(layer.problem)
