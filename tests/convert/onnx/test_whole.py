"""A network's ONNX file comes back whole: attention in the place of its convolutions, everything else as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import nn

from conv2attn.convert import ConversionError, convert_model
from conv2attn.convert.files.open import open_network
from conv2attn.convert.onnx.write import FORMS, LAYERS, WholeModel, attention_model, flaw
from tests.onnx_files import network, operators, port, run, tensor


def whole_of(path: Path, form: str = "separable", **options: Any) -> WholeModel:
    model = convert_model(open_network(path).cnn(), skip_unsupported=True, **options).model
    return attention_model(path, dict(model.named_modules(remove_duplicate=False)).get, form=form)


def written(whole: WholeModel, path: Path) -> ModelProto:
    whole.write(path)
    assert flaw(path) is None
    return onnx.load(path)


def numbers(*shape: int) -> Any:
    """The same small integers at every call."""
    return np.random.default_rng(3).integers(-4, 5, size=shape).astype(np.float32)


def branching() -> ModelProto:
    """Two convolutions with one weight, a transposed one within an If, and nodes that are no convolutions."""
    inner = helper.make_graph(
        [helper.make_node("ConvTranspose", ["b", "up"], ["inner"], name="up", strides=[2, 2])],
        "then",
        [],
        [port("inner", None)],
    )
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["same"])], "else", [], [port("same", None)])
    nodes = [
        helper.make_node("Conv", ["x", "weight", "bias"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"], doc_string="kept"),
        helper.make_node("Conv", ["r", "weight", "bias"], ["b"], name="second", auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=other),
    ]
    tensors = [tensor("weight", numbers(2, 2, 3, 3)), tensor("bias", numbers(2)), tensor("up", numbers(2, 3, 2, 2))]
    inputs = [port("x", ["n", 2, "h", "w"]), port("flag", [], TensorProto.BOOL)]
    return network(nodes, tensors, inputs=inputs, outputs=[port("y", ["n", "c", "u", "v"])])


@pytest.mark.parametrize("form", FORMS)
def test_a_network_with_a_branch_computes_the_same_bits(form: str, tmp_path: Path) -> None:
    original = branching()
    onnx.save(original, tmp_path / "in.onnx")
    whole = whole_of(tmp_path / "in.onnx", form)
    assert len(whole.layers) == 3
    assert not whole.left
    made = written(whole, tmp_path / "out.onnx")
    assert operators(made.graph).isdisjoint({"Conv", "ConvTranspose"})
    for shape in ((1, 2, 7, 6), (3, 2, 8, 9)):
        for flag in (True, False):
            feeds = {"x": numbers(*shape), "flag": np.array(flag)}
            assert np.array_equal(*(run(model, **feeds)[0] for model in (original, made)))


def test_everything_else_stays_and_weights_are_kept_once(tmp_path: Path) -> None:
    original = branching()
    onnx.save(original, tmp_path / "in.onnx")
    made = written(whole_of(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    assert list(made.graph.initializer) == list(original.graph.initializer)
    assert (made.graph.input, made.graph.output) == (original.graph.input, original.graph.output)
    assert original.graph.node[1] in made.graph.node
    records = json.loads({entry.key: entry.value for entry in made.metadata_props}[LAYERS])
    assert {record["heads"] for record in records.values()} == {4, 9}


def test_tensors_beside_the_file_move_into_it_four_bit_integers_too(tmp_path: Path) -> None:
    original, nibbles = branching(), bytes([0xDC, 0xFE, 0x10, 0x32])  # two to a byte
    original.graph.initializer.append(helper.make_tensor("nibbles", TensorProto.INT4, [8], nibbles, raw=True))
    onnx.save(original, tmp_path / "in.onnx", save_as_external_data=True, location="numbers", size_threshold=0)
    made = written(whole_of(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    (found,) = (numpy_helper.to_array(one) for one in made.graph.initializer if one.name == "nibbles")
    assert found.tolist() == [-4, -3, -2, -1, 0, 1, 2, 3]
    made.graph.initializer.remove(next(one for one in made.graph.initializer if one.name == "nibbles"))
    feeds = {"x": numbers(2, 2, 7, 6), "flag": np.array(True)}
    assert np.array_equal(run(made, **feeds)[0], run(branching(), **feeds)[0])


def test_a_function_of_the_model_is_put_into_its_graph(tmp_path: Path) -> None:
    body = [helper.make_node("Conv", ["a", "w"], ["b"])]
    function = helper.make_function("own", "Block", ["a", "w"], ["b"], body, [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("Block", ["x", "weight"], ["y"], domain="own", name="block")]
    ports = [port("x", ["n", 2, "h", "w"])], [port("y", ["n", 2, "u", "v"])]
    original = network(
        nodes, [tensor("weight", numbers(2, 2, 3, 3))], inputs=ports[0], outputs=ports[1], functions=[function]
    )
    onnx.save(original, tmp_path / "in.onnx")
    made = written(whole_of(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    x = numbers(2, 2, 5, 6)
    assert np.array_equal(run(made, x=x)[0], run(original, x=x)[0])
    assert not made.functions


def test_an_operator_over_integers_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {"xs": np.float32(1), "xz": np.uint8(0), "w": np.ones((2, 2, 3, 3), np.int8), "ws": np.float32(1)}
    tensors |= {"wz": np.int8(0), "ys": np.float32(1), "yz": np.uint8(0)}
    node = helper.make_node("QLinearConv", ["x", *tensors], ["y"], name="q")
    ports = [port(name, None, TensorProto.UINT8) for name in "xy"]
    stored = [tensor(name, values) for name, values in tensors.items()]
    onnx.save(network([node], stored, inputs=ports[:1], outputs=ports[1:]), tmp_path / "in.onnx")
    with pytest.raises(ConversionError, match="QLinearConv computes with integers"):
        whole_of(tmp_path / "in.onnx")


def test_a_layer_that_was_not_chosen_stays_a_convolution(tmp_path: Path) -> None:
    onnx.save(branching(), tmp_path / "in.onnx")
    whole = whole_of(tmp_path / "in.onnx", filter_fn=lambda conv, _: isinstance(conv, nn.ConvTranspose2d))
    made = written(whole, tmp_path / "out.onnx")
    assert operators(made.graph) >= {"Conv"}
    assert len(whole.left) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_halves_and_doubles_are_computed_as_the_layer_computes_them(dtype: torch.dtype, tmp_path: Path) -> None:
    kind = {torch.float16: TensorProto.FLOAT16, torch.float64: TensorProto.DOUBLE}[dtype]
    values = torch.from_numpy(numbers(2, 2, 3, 3)).to(dtype)
    nodes = [helper.make_node("Conv", ["x", "weight"], ["y"], pads=[1, 1, 1, 1])]
    ports = [port("x", ["n", 2, "h", "w"], kind)], [port("y", ["n", 2, "h", "w"], kind)]
    original = network(nodes, [tensor("weight", values)], inputs=ports[0], outputs=ports[1])
    onnx.save(original, tmp_path / "in.onnx")
    made = written(whole_of(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    x = numbers(2, 2, 5, 6).astype(values.numpy().dtype)
    (output,) = run(made, x=x)
    expected = torch.nn.functional.conv2d(torch.from_numpy(x), values, padding=1)
    assert output.dtype == x.dtype
    assert torch.equal(torch.from_numpy(output), expected)


def test_a_layer_in_another_precision_does_not_take_a_nodes_place(tmp_path: Path) -> None:
    onnx.save(branching(), tmp_path / "in.onnx")
    model = convert_model(open_network(tmp_path / "in.onnx").cnn().double()).model
    named = dict(model.named_modules(remove_duplicate=False)).get
    whole = attention_model(tmp_path / "in.onnx", named, form="separable")
    assert not whole.layers
    assert {problem.reason for problem in whole.refused} == {
        "its layer is in torch.float64, and the file in torch.float32"
    }
