"""Weights that come through other nodes, or as integers, are what onnx computes with them, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conv2attn.convert.onnx.constants import DEQUANTISED
from tests.onnx_files import network, port, read, small_integers, tensor

CONV = helper.make_node("Conv", ["x", "v"], ["out"], "conv")


def weighted(nodes: list[NodeProto], **tensors: Any) -> ModelProto:
    """A network whose output is the weight "v" of its convolution."""
    stored = [tensor(name, values) for name, values in tensors.items()]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
    return network([*nodes, CONV], stored, inputs=[port("x", None)], outputs=[port("v", None, kind)], opset=21)


def computed_by_onnx(model: ModelProto) -> torch.Tensor:
    """The weight of the convolution, which is the last node."""
    before = ModelProto()
    before.CopyFrom(model)
    before.graph.node.pop()
    (weight,) = ReferenceEvaluator(before).run(["v"], {"x": np.zeros(1, np.float32)})
    return torch.from_numpy(np.array(weight))


def through(operator: str, *inputs: str, **attributes: Any) -> list[NodeProto]:
    return [helper.make_node(operator, ["w", *inputs], ["v"], **attributes)]


def numbers(*values: int) -> Any:
    return np.array(values)


W = small_integers(3, 2, 2, 4)
THROUGH: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    "Cast from half precision": (through("Cast", to=TensorProto.FLOAT), {"w": W.astype(np.float16)}),
    "Transpose of channels-last weights": (through("Transpose", perm=[3, 2, 0, 1]), {"w": W}),
    "Split": ([helper.make_node("Split", ["w"], ["u", "v"], axis=1, num_outputs=2)], {"w": W}),
    "weight normalisation": (
        [
            helper.make_node("ReduceL2", ["w", "a"], ["n"], keepdims=1),
            helper.make_node("Div", ["w", "n"], ["u"]),
            helper.make_node("Mul", ["u", "g"], ["v"]),
        ],
        {"w": W + 0.5, "a": numbers(1, 2, 3), "g": small_integers(3, 1, 1, 1)},
    ),
    "rounding to integers and back": (
        [
            helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=-1),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["v"], axis=-1),
        ],
        {"w": W / 3, "s": np.array([1, 2, 3, 4], np.float32) / 8, "z": np.array([9, 8, 7, 6], np.uint8)},
    ),
    "Constants and several nodes": (
        [
            helper.make_node("Constant", [], ["s"], value=tensor("", numbers(4, 3, 2, 2))),
            helper.make_node("Constant", [], ["f"], value_float=0.1),
            helper.make_node("Transpose", ["w"], ["a"], perm=[3, 0, 1, 2]),
            helper.make_node("Reshape", ["a", "s"], ["b"]),
            helper.make_node("Mul", ["b", "f"], ["c"]),
            helper.make_node("Identity", ["c"], ["v"]),
        ],
        {"w": W},
    ),
}


@pytest.mark.parametrize("name", THROUGH)
def test_a_weight_that_comes_through_nodes_is_what_onnx_computes(name: str, tmp_path: Path) -> None:
    nodes, stored = THROUGH[name]
    model = weighted(nodes, **stored)
    tensors, layers = read(model, tmp_path / "m.onnx")
    assert torch.equal(tensors[layers["conv"].weight], computed_by_onnx(model))


COMPUTED: dict[str, tuple[list[NodeProto], str]] = {
    "the input": ([helper.make_node("Identity", ["x"], ["v"])], "its weight is an input of its graph, computed when"),
    "of the input": ([helper.make_node("Mul", ["w", "x"], ["v"])], "its weight is computed by Mul"),
    "by another's operator": (through("Cast", to=1, domain="own"), "its weight is computed by Cast"),
    "by nobody": ([], "its weight is computed or not in the file"),
    "a bias": (through("Identity"), "its bias is an input of its graph"),
    "as onnx does not": (through("Reshape", "s"), "Reshape, which onnx does not run: ValueError: cannot reshape"),
    "wrongly": (through("Transpose", perm=[0, 1, 2, 2]), "its weight is computed by Transpose"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_weight_that_is_computed_is_refused_by_what_computes_it(name: str, tmp_path: Path) -> None:
    nodes, reason = COMPUTED[name]
    model = weighted(nodes, w=W, s=numbers(7, 7))
    if name == "a bias":
        model.graph.node[-1].input.append("x")
    layer = read(model, tmp_path / "m.onnx")[1]["conv"]
    assert layer.spec is None
    assert reason in str(layer.problem)


@pytest.mark.parametrize(("dtype", "channels"), [(np.int8, 3), (np.uint8, None), (np.int32, 3)])
def test_a_dequantised_weight_is_bit_for_bit_what_onnx_makes_of_it(
    dtype: Any, channels: int | None, tmp_path: Path
) -> None:
    generator, shape = np.random.default_rng(5), () if channels is None else (channels,)
    allowed = np.iinfo(dtype)
    integers = generator.integers(max(allowed.min, -(2**20)), min(allowed.max, 2**20), size=W.shape).astype(dtype)
    points = np.asarray(generator.integers(0, 100, size=shape)).astype(dtype) * (dtype != np.int32)
    scale = np.asarray(generator.random(shape, np.float32) / 50)
    for given in (["s"], ["s", "z"]):
        model = weighted(through("DequantizeLinear", *given, axis=0), w=integers, s=scale, z=points.astype(dtype))
        tensors, layers = read(model, tmp_path / "m.onnx")
        assert torch.equal(tensors[layers["conv"].weight], computed_by_onnx(model))
        assert layers["conv"].note == DEQUANTISED


@pytest.mark.parametrize("opset", [10, 13, 18, 21])
def test_weights_are_dequantised_in_every_version(opset: int, tmp_path: Path) -> None:
    """Up to version 18 onnx's own reference refuses these."""
    many = opset > 10  # scales
    scale = np.array([0.5, 0.25, 2] if many else 0.5, np.float32)
    stored = np.random.default_rng(2).integers(-127, 127, size=W.shape).astype(np.int8)
    along = {"axis": 0} if many else {}
    model = weighted(through("DequantizeLinear", "s", **along), w=stored, s=scale)
    model.opset_import[0].version = opset
    tensors, layers = read(model, tmp_path / "m.onnx")
    expected = torch.from_numpy(stored).float() * torch.from_numpy(np.asarray(scale).reshape(-1, 1, 1, 1))
    assert torch.equal(tensors[layers["conv"].weight], expected)


@pytest.mark.parametrize(
    ("operator", "domain", "names", "words"),
    [
        ("ConvInteger", "", "w", "ConvInteger computes with integers; write the file with DequantizeLinear"),
        ("QLinearConv", "", "abwcdef", "QLinearConv computes with integers; write the file with DequantizeLinear"),
        ("DeformConv", "", "w", "DeformConv"),
        ("FusedConv", "com.microsoft", "w", "com.microsoft"),
    ],
)
def test_convolutions_over_integers_and_others_are_refused_by_name(
    operator: str, domain: str, names: str, words: str, tmp_path: Path
) -> None:
    node = helper.make_node(operator, ["q", *names], ["y"], "conv", domain=domain)
    stored = [tensor(name, np.random.default_rng(3).integers(0, 255, (2, 2, 3, 3)).astype(np.uint8)) for name in names]
    ends = {"inputs": [port("q", None, TensorProto.UINT8)], "outputs": [port("y", None)]}
    problem = str(read(network([node], stored, **ends, opset=21), tmp_path / "m.onnx")[1]["conv"].problem)
    assert words in problem
