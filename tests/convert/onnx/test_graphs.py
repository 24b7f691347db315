"""Convolutions are found in every graph of a model, and their layers have names that modules can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch import nn

from conv2attn.convert.onnx.read import COMPUTED, FOLDED, OPEN, folding_note, layer_names
from tests.onnx_files import convolution_in, network, port, read, small_integers, tensor

CONDITION = port("c", [], TensorProto.BOOL)
ONE = np.ones((1, 1, 1, 1), np.float32)


def model(
    nodes: list[NodeProto], tensors: list[TensorProto], functions: list[FunctionProto] | None = None
) -> ModelProto:
    ends = {"inputs": [port("x", None), CONDITION], "outputs": [port("y", None)]}
    return network(nodes, tensors, **ends, opset=21, functions=functions or [])


def assert_computes(layer: nn.Module, of: ModelProto, *, condition: bool = True) -> None:
    x = small_integers(1, 3, 5, 6)
    (wanted,) = ReferenceEvaluator(of).run(None, {"x": x, "c": np.array(condition)})
    assert torch.equal(layer(torch.from_numpy(x)), torch.from_numpy(np.array(wanted)))


def branch(weight: str, *tensors: TensorProto) -> GraphProto:
    """A graph within another that convolves what that one has."""
    node = helper.make_node("Conv", ["x", weight], ["inner"], "conv")
    return helper.make_graph([node], "branch", [], [port("inner", None)], tensors)


def choice(*branches: GraphProto, name: str = "choice", output: str = "y") -> NodeProto:
    names = dict(zip(("then_branch", "else_branch"), branches, strict=False))
    return helper.make_node("If", ["c"], [output], name, **names)


def test_each_branch_has_its_own_convolution_and_sees_the_names_around_it(tmp_path: Path) -> None:
    outer = tensor("w", small_integers(2, 3, 2, 2))
    of = model([choice(branch("own", tensor("own", small_integers(2, 3, 1, 2))), branch("w"))], [outer])
    tensors, layers = read(of, tmp_path / "m.onnx")
    assert layers.keys() == {"choice.then_branch.conv", "choice.else_branch.conv"}
    assert tensors.keys() == {"w", "choice.then_branch.own"}
    for condition, name in ((True, "then"), (False, "else")):
        layer = convolution_in(of, f"choice.{name}_branch.conv", tmp_path / "m.onnx")
        assert_computes(layer, of, condition=condition)


def loop(x: str, weight: str) -> list[NodeProto]:
    """A loop that convolves its image once."""
    kinds = (("i", TensorProto.INT64), ("go", TensorProto.BOOL), ("image", TensorProto.FLOAT))
    nodes = [
        helper.make_node("Identity", ["go"], ["again"]),
        helper.make_node("Conv", [x, weight], ["result"], "conv", strides=[2, 1]),
    ]
    outputs = [port("again", None, TensorProto.BOOL), port("result", None)]
    body = helper.make_graph(nodes, "body", [port(name, None, kind) for name, kind in kinds], outputs)
    return [
        helper.make_node("Constant", [], ["one"], value=tensor("", np.array(1))),
        helper.make_node("Constant", [], ["true"], value=tensor("", np.array(True))),
        helper.make_node("Loop", ["one", "true", "x"], ["y"], body=body),
    ]


def test_the_convolution_in_a_loop_is_found_unless_its_weight_is_carried(tmp_path: Path) -> None:
    of = model(loop("image", "w"), [tensor("w", small_integers(2, 3, 2, 2))])
    assert_computes(convolution_in(of, "Loop.body.conv", tmp_path / "m.onnx"), of)
    of = model(loop("x", "image"), [])
    assert "computed when it runs" in str(read(of, tmp_path / "m.onnx")[1]["Loop.body.conv"].problem)


def block(name: str, nodes: list[NodeProto], **more: Any) -> FunctionProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["image", "kernel"], ["result"], nodes, opsets, **more)


def test_a_function_is_its_convolution_once_for_each_call(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["image", "turned"], ["result"], "conv")
    conv.attribute.append(AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS))
    turn = helper.make_node("Transpose", ["kernel"], ["turned"], perm=[3, 2, 0, 1])
    calls = [
        helper.make_node("Block", ["x", "first.weight"], ["z"], domain="own", steps=[2, 1]),
        helper.make_node("Block", ["z", "second.weight"], ["y"], domain="own", steps=[1, 2]),
    ]
    weights = [tensor("first.weight", small_integers(2, 2, 3, 2)), tensor("second.weight", small_integers(1, 2, 2, 4))]
    of = model(calls, weights, [block("Block", [turn, conv], attributes=["steps"])])
    first, second = (convolution_in(of, name, tmp_path / "m.onnx") for name in ("first", "second"))
    assert (first.stride, second.stride) == ((2, 1), (1, 2))
    assert_computes(nn.Sequential(first, second), of)


def test_nodes_with_one_weight_and_geometry_share_a_layer(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "a.weight"], ["r"], "/first/Conv"),
        helper.make_node("Conv", ["r", "a.weight"], ["s"], "/second/Conv"),
        helper.make_node("Conv", ["s", "a.weight"], ["t"], "/third/Conv", strides=[2, 2]),
        helper.make_node("Conv", ["t", "other"], ["y"]),
    ]
    layers = read(model(nodes, [tensor("a.weight", ONE), tensor("other", ONE)]), tmp_path / "m.onnx")[1]
    assert {name: layer.original for name, layer in layers.items()} == {
        "a": None,
        "third": "/third/Conv",
        "Conv_3": None,
    }


NAMES = {
    "/layer1/layer1.0/conv1/Conv": "layer1.0.conv1",
    "/features/features.0/features.0.0/Conv": "features.0.0",
    "/a/b/Conv_1": "a.b.Conv_1",
    "resnet50/conv1_conv/Conv2D": "resnet50.conv1_conv",
    "a/conv2d_1/Conv2D__12": "a.conv2d_1",
    "a/conv1d;b/conv1d": "a.conv1d",
    "Conv@1": "Conv_1",
    "training/forward": "training_.forward_",
    "::": "_",
}


def test_a_name_becomes_that_of_the_module_which_it_tells_of() -> None:
    assert {name: layer_names([name])[name] for name in NAMES} == NAMES


PIECES = st.sampled_from(["a", "b", ".", "/", "a.0", "Conv", "Conv2D", "_2", ":", ";", "forward", "0"])


@settings(max_examples=30)
@given(st.lists(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=8), unique=True, max_size=8))
@example(["." * 300, "a" * 200])
def test_whatever_nodes_are_called_their_layers_can_all_be_modules(names: list[str]) -> None:
    root = nn.Module()
    for name in layer_names(names).values() if names != [""] else ():
        *parents, last = name.split(".")
        place = root
        for parent in parents:
            if parent not in place._modules:
                place.add_module(parent, nn.Module())
            place = place.get_submodule(parent)
        assert last not in place._modules
        place.add_module(last, nn.Identity())


REWRITES = "pkg.onnxscript.rewriter.rule_name"


@pytest.mark.parametrize(
    ("metadata", "weight", "note"),
    [
        ({REWRITES: "CastCast, FuseBatchNormIntoConv", "pkg.torch.onnx.node": "%conv"}, "onnx::Conv_7", FOLDED),
        ({"pkg.torch.onnx.trace": "FuseBatchNormIntoConv"}, "onnx::Conv_7", None),
        ({"pkg.torch": "FuseBatchNormIntoConv"}, "onnx::Conv_7", COMPUTED),
        ({}, "my_onnx::Conv", OPEN),
    ],
)
def test_a_record_of_the_exporter_decides_then_the_weight_s_name(
    metadata: dict[str, str], weight: str, note: str | None
) -> None:
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    for key, value in metadata.items():
        node.metadata_props.add(key=key, value=value)
    assert folding_note(node, weight, normalised=False) == note


@pytest.mark.parametrize(("has_bias", "normalised"), [(False, False), (True, False), (True, True)])
def test_otherwise_it_is_open_if_there_is_a_bias_and_no_batch_normalisation_is_left(
    has_bias: bool, normalised: bool, tmp_path: Path
) -> None:
    conv = helper.make_node("Conv", ["x", "w", "b"] if has_bias else ["x", "w"], ["z"], "conv")
    norm = helper.make_node("BatchNormalization" if normalised else "Relu", ["z"], ["y"])
    of = model([conv, norm], [tensor("w", ONE), tensor("b", np.ones(1, np.float32))])
    assert read(of, tmp_path / "m.onnx")[1]["conv"].note == (OPEN if has_bias and not normalised else None)
