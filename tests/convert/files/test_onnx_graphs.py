"""Convolutions are found wherever a graph has them, and weights that come through other nodes are what onnx makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

from conv2attn.convert import SelfAttention2d, convert_model
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import Checkpoint, read_checkpoint
from conv2attn.convert.files.open import Network, open_network
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED
from tests.hostile.bombs import field

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
IMAGE = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
RESULT = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]


@pytest.fixture
def numbers() -> np.random.Generator:
    return np.random.default_rng(7)


def whole(numbers: np.random.Generator, *shape: int) -> Any:
    """Small integers in single precision, whose products are summed without rounding in any order."""
    return numbers.integers(-4, 5, size=shape).astype(np.float32)


def tensor(name: str, values: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values), name)


def model(
    nodes: list[NodeProto], tensors: list[TensorProto], functions: list[FunctionProto] | None = None
) -> ModelProto:
    graph = helper.make_graph(nodes, "graph", IMAGE, RESULT, tensors)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10, functions=functions or [])


def opened(path: Path, proto: ModelProto) -> Network:
    path.write_bytes(proto.SerializeToString())
    return open_network(path)


def checkpoint_of(path: Path, proto: ModelProto) -> Checkpoint:
    path.write_bytes(proto.SerializeToString())
    return read_checkpoint(path)


def layer(network: Network, name: str) -> SelfAttention2d:
    found = convert_model(network.model, skip_unsupported=True).model.get_submodule(name)
    assert isinstance(found, SelfAttention2d)
    return found


def assert_computes(found: SelfAttention2d | nn.Module, proto: ModelProto, x: Any, **inputs: Any) -> None:
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x, **inputs})
    assert torch.equal(found(torch.from_numpy(x)), torch.from_numpy(np.asarray(wanted)))


# Weights that come through other nodes


def through(operator: str, **attributes: Any) -> list[NodeProto]:
    """A convolution whose weight comes through a node."""
    given = helper.make_node(operator, ["w"], ["v"], **attributes)
    return [given, helper.make_node("Conv", ["x", "v"], ["y"], "conv")]


THROUGH: dict[str, tuple[list[NodeProto], tuple[int, ...], Any]] = {
    "Identity": (through("Identity"), (3, 2, 2, 3), np.float32),
    "Cast from half precision": (through("Cast", to=TensorProto.FLOAT), (3, 2, 2, 3), np.float16),
    "Cast from integers": (through("Cast", to=TensorProto.FLOAT), (3, 2, 2, 3), np.int8),
    "Transpose of channels-last weights": (through("Transpose", perm=[3, 2, 0, 1]), (2, 3, 2, 3), np.float32),
    "Transpose as it is by default": (through("Transpose"), (3, 2, 2, 3), np.float32),
    "Reshape": (
        [
            helper.make_node("Constant", [], ["s"], value_ints=[0, 2, -1, 3]),
            helper.make_node("Constant", [], ["t"], value=tensor("", np.array([0, 2, -1, 3]))),
            helper.make_node("Reshape", ["w", "t"], ["v"]),
            helper.make_node("Conv", ["x", "v"], ["y"], "conv"),
        ],
        (3, 12),
        np.float32,
    ),
    "all of them": (
        [
            helper.make_node("Identity", ["w"], ["a"]),
            helper.make_node("Transpose", ["a"], ["b"], perm=[3, 2, 0, 1]),
            helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT),
            helper.make_node("Constant", [], ["t"], value=tensor("", np.array([3, 2, 2, 3]))),
            helper.make_node("Reshape", ["c", "t"], ["d"]),
            helper.make_node("Identity", ["d"], ["v"]),
            helper.make_node("Conv", ["x", "v"], ["y"], "conv"),
        ],
        (2, 3, 2, 3),
        np.float16,
    ),
}


@pytest.mark.parametrize("name", THROUGH)
def test_a_weight_that_comes_through_nodes_is_what_onnx_computes(
    name: str, numbers: np.random.Generator, tmp_path: Path
) -> None:
    nodes, shape, dtype = THROUGH[name]
    proto = model(nodes, [tensor("w", whole(numbers, *shape).astype(dtype))])
    found = layer(opened(tmp_path / "m", proto), "conv")
    channels = found.in_channels
    assert_computes(found, proto, whole(numbers, 2, channels, 6, 7))


def test_a_weight_that_comes_through_a_node_gives_its_layer_its_own_name(tmp_path: Path) -> None:
    shared = [helper.make_node("Identity", ["a.b.weight"], ["v"]), helper.make_node("Conv", ["x", "v"], ["y"], "/n")]
    proto = model(shared, [tensor("a.b.weight", np.ones((1, 1, 2, 2), np.float32))])
    assert checkpoint_of(tmp_path / "m", proto).convolutions.keys() == {"a.b"}


COMPUTED: dict[str, tuple[list[NodeProto], str]] = {
    "of the input": ([helper.make_node("Conv", ["x", "x"], ["y"], "conv")], "its weight is an input of its graph"),
    "by a node": (through("Mul"), "its weight is computed by Mul"),
    "by a cast to integers": (through("Cast", to=TensorProto.INT8), "its weight is computed by Cast"),
    "by a transpose of other axes": (through("Transpose", perm=[0, 1, 2, 2]), "its weight is computed by Transpose"),
    "by a reshape to another size": (
        [
            helper.make_node("Constant", [], ["t"], value=tensor("", np.array([9, 9, 9, 9]))),
            helper.make_node("Reshape", ["w", "t"], ["v"]),
            helper.make_node("Conv", ["x", "v"], ["y"], "conv"),
        ],
        "its weight is computed by Reshape",
    ),
    "by nobody": ([helper.make_node("Conv", ["x", "nothing"], ["y"], "conv")], "computed or not in the file"),
    "a bias": ([helper.make_node("Conv", ["x", "w", "x"], ["y"], "conv")], "its bias is an input of its graph"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_weight_that_is_computed_is_refused_by_what_computes_it(name: str, tmp_path: Path) -> None:
    nodes, reason = COMPUTED[name]
    proto = model(nodes, [tensor("w", np.ones((3, 2, 2, 3), np.float32))])
    found = checkpoint_of(tmp_path / "m", proto).convolutions["conv"]
    assert found.spec is None
    assert reason in str(found.problem)


def test_a_name_that_stands_for_two_tensors_is_refused(tmp_path: Path) -> None:
    twice = [helper.make_node("Relu", ["x"], ["w"]), helper.make_node("Conv", ["x", "w"], ["y"], "conv")]
    proto = model(twice, [tensor("w", np.ones((1, 1, 1, 1), np.float32))])
    with pytest.raises(CheckpointError, match="two tensors called 'w'"):
        checkpoint_of(tmp_path / "m", proto)


# Graphs within graphs


def branch(weight: TensorProto, name: str, own: str = "") -> GraphProto:
    """A graph within another, which convolves what that one has."""
    output = [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)]
    node = helper.make_node("Conv", ["x", weight.name], ["inner"], own)
    return helper.make_graph([node], name, [], output, [weight])


def test_the_convolutions_of_both_branches_are_found_and_each_is_its_own(
    numbers: np.random.Generator, tmp_path: Path
) -> None:
    branches = [branch(tensor("w", whole(numbers, 2, 3, 2, 2)), "b", "conv") for _ in range(2)]
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branches[0], else_branch=branches[1])
    proto = model([node], [])
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    network = opened(tmp_path / "m", proto)
    x = whole(numbers, 1, 3, 5, 6)
    for condition, name in ((True, "choice.then_branch.conv"), (False, "choice.else_branch.conv")):
        assert_computes(layer(network, name), proto, x, c=np.array(condition))


def test_a_graph_sees_the_names_around_it(numbers: np.random.Generator, tmp_path: Path) -> None:
    outer = tensor("w", whole(numbers, 2, 3, 2, 2))
    inner = [branch(tensor("own", whole(numbers, 2, 3, 1, 1)), "own", "conv"), branch(outer, "outer", "conv")]
    inner[1].ClearField("initializer")
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=inner[0], else_branch=inner[1])
    proto = model([node], [outer])
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    network = opened(tmp_path / "m", proto)
    for condition, name in ((True, "choice.then_branch.conv"), (False, "choice.else_branch.conv")):
        assert_computes(layer(network, name), proto, whole(numbers, 1, 3, 5, 6), c=np.array(condition))


def test_a_name_that_a_graph_and_one_around_it_have_is_refused_by_its_layer(tmp_path: Path) -> None:
    weights = [tensor("w", np.ones((1, 1, size, 1), np.float32)) for size in (1, 2)]
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch(weights[0], "b", "conv"))
    found = checkpoint_of(tmp_path / "m", model([node], weights[1:])).convolutions["choice.then_branch.conv"]
    assert found.problem == "its weight is of a name that a graph around has, too"


def loop(nodes: list[NodeProto], weights: list[TensorProto]) -> NodeProto:
    """A loop that runs its body once; the body's image is "image"."""
    kinds = (("i", TensorProto.INT64), ("go", TensorProto.BOOL), ("image", TensorProto.FLOAT))
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("again", "result")]
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["again"]), *nodes], "b", inputs, outputs, weights)
    return helper.make_node("Loop", ["one", "true", "x"], ["y"], body=body)


def test_the_convolution_in_a_loop_is_found(numbers: np.random.Generator, tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["image", "w"], ["result"], "conv", strides=[2, 1])
    around = [tensor("one", np.array(1)), tensor("true", np.array(True)), tensor("w", whole(numbers, 2, 3, 2, 2))]
    proto = model([loop([conv], [])], around)
    assert_computes(layer(opened(tmp_path / "m", proto), "Loop.body.conv"), proto, whole(numbers, 1, 3, 5, 6))


def test_what_a_loop_carries_is_computed_even_if_the_graph_around_has_a_tensor_of_its_name(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "image"], ["result"], "conv")
    around = [tensor(name, np.ones((1, 1, 1, 1), np.float32)) for name in ("one", "true", "image")]
    found = checkpoint_of(tmp_path / "m", model([loop([conv], [])], around)).convolutions["Loop.body.conv"]
    assert "its weight is of a name that a graph around has, too" in str(found.problem)


def test_what_a_loop_carries_is_not_the_number_that_its_body_has_for_it(tmp_path: Path) -> None:
    """ONNX's reference takes what is carried, and ONNX Runtime refuses the model."""
    conv = helper.make_node("Conv", ["x", "image"], ["result"], "conv")
    ones = np.ones((1, 1, 1, 1), np.float32)
    around = [tensor("one", np.array(1)), tensor("true", np.array(True))]
    proto = model([loop([conv], [tensor("image", ones)])], around)
    (theirs,) = ReferenceEvaluator(proto).run(None, {"x": 5 * ones})
    assert theirs == 25
    found = checkpoint_of(tmp_path / "m", proto).convolutions["Loop.body.conv"]
    assert found.problem == "its weight is an input of a graph within the model's, and has numbers there, too"


def test_a_sparse_weight_is_refused_by_name(tmp_path: Path) -> None:
    values, place = helper.make_tensor("w", TensorProto.FLOAT, [1], [5.0]), tensor("i", np.array([0]))
    proto = model([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], [tensor("other", np.ones(1, np.float32))])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, place, [1, 1, 2, 2]))
    assert checkpoint_of(tmp_path / "m", proto).convolutions["conv"].problem == "its weight is sparse"


# Functions


def function(nodes: list[NodeProto], attributes: list[str] | None = None) -> FunctionProto:
    return helper.make_function(
        "own", "Block", ["image", "kernel"], ["result"], nodes, OPSETS[:1], attributes=attributes or []
    )


def test_a_function_is_its_convolution_once_for_each_call(numbers: np.random.Generator, tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["image", "kernel"], ["result"], "conv")
    refers = AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS)
    conv.attribute.append(refers)
    calls = [
        helper.make_node("Block", ["x", "a"], ["z"], "first", domain="own", steps=[2, 1]),
        helper.make_node("Block", ["z", "b"], ["y"], "second", domain="own", steps=[1, 2]),
    ]
    tensors = [tensor("a", whole(numbers, 2, 3, 2, 2)), tensor("b", whole(numbers, 4, 2, 1, 2))]
    proto = model(calls, tensors, [function([conv], ["steps"])])
    network = opened(tmp_path / "m", proto)
    first, second = (layer(network, f"{name}.conv") for name in ("first", "second"))
    assert (first.spec.stride, second.spec.stride) == ((2, 1), (1, 2))
    assert_computes(nn.Sequential(first, second), proto, whole(numbers, 1, 3, 7, 6))


@pytest.mark.parametrize("default", [None, [1, 2]])
def test_an_attribute_that_a_call_leaves_out_has_its_default(default: list[int] | None, tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["image", "kernel"], ["result"], "conv")
    conv.attribute.append(AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS))
    own = function([conv], ["steps"] if default is None else [])
    if default is not None:
        own.attribute_proto.append(helper.make_attribute("steps", default))
    call = helper.make_node("Block", ["x", "a"], ["y"], "call", domain="own")
    proto = model([call], [tensor("a", np.ones((1, 1, 1, 1), np.float32))], [own])
    spec = checkpoint_of(tmp_path / "m", proto).convolutions["call.conv"].spec
    assert spec is not None
    assert spec.stride == tuple(default or (1, 1))


def test_a_weight_that_a_function_makes_is_known_to_whoever_called_it(
    numbers: np.random.Generator, tmp_path: Path
) -> None:
    turn = helper.make_function(
        "own", "Turn", ["w"], ["v"], [helper.make_node("Transpose", ["w"], ["v"], perm=[3, 2, 0, 1])], OPSETS[:1]
    )
    nodes = [
        helper.make_node("Turn", ["w"], ["v"], "turn", domain="own"),
        helper.make_node("Conv", ["x", "v"], ["y"], "conv"),
    ]
    proto = model(nodes, [tensor("w", whole(numbers, 2, 3, 2, 4))], [turn])
    assert_computes(layer(opened(tmp_path / "m", proto), "conv"), proto, whole(numbers, 1, 2, 5, 6))


def test_a_function_that_calls_itself_and_graphs_without_end_are_refused(tmp_path: Path) -> None:
    again = helper.make_node("Block", ["image", "kernel"], ["result"], domain="own")
    calls = [helper.make_node("Block", ["x", "x"], ["y"], domain="own")]
    with pytest.raises(CheckpointError, match="nests graphs more than 64 deep"):
        checkpoint_of(tmp_path / "m", model(calls, [], [function([again])]))
    graph = b""
    for _ in range(70):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    (tmp_path / "m").write_bytes(b"\x08\x0a" + field(7, graph))
    with pytest.raises(CheckpointError, match="nests graphs more than 64 deep"):
        read_checkpoint(tmp_path / "m")


def test_a_function_that_takes_the_place_of_conv_is_what_it_does(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], "conv", domain="own")
    own = helper.make_function(
        "own", "Conv", ["a", "b"], ["c"], [helper.make_node("Add", ["a", "b"], ["c"])], OPSETS[:1]
    )
    proto = model([conv], [tensor("w", np.ones((1, 1, 1, 1), np.float32))], [own])
    assert checkpoint_of(tmp_path / "m", proto).convolutions == {}


# Integers that stand for weights


def quantised(numbers: np.random.Generator, dtype: Any, channels: int | None) -> list[TensorProto]:
    """Integers for [3, 2, 2, 3], their scales and zero points: one for all, or one for each output channel."""
    allowed, shape = np.iinfo(dtype), () if channels is None else (channels,)
    points = numbers.integers(max(allowed.min, -100), 100, size=shape).astype(dtype)
    integers = numbers.integers(max(allowed.min, -(2**20)), min(allowed.max, 2**20), size=(3, 2, 2, 3)).astype(dtype)
    points = np.zeros_like(points) if dtype == np.int32 else points
    scales = numbers.random(shape, np.float32) / 50
    return [tensor("q", integers), tensor("s", scales), tensor("z", points)]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("has_points", [False, True])
def test_a_dequantised_weight_is_bit_for_bit_what_onnx_makes_of_it(
    dtype: Any, channels: int | None, has_points: bool, numbers: np.random.Generator, tmp_path: Path
) -> None:
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"] if has_points else ["q", "s"], ["v"], axis=0)
    conv = helper.make_node("Conv", ["x", "v"], ["w"], "conv")
    proto = model([node, conv, helper.make_node("Identity", ["v"], ["y"])], quantised(numbers, dtype, channels))
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": np.zeros((1, 2, 4, 4), np.float32)})
    network = opened(tmp_path / "m", proto)
    assert torch.equal(network.model.get_parameter("conv.weight"), torch.from_numpy(np.asarray(wanted)))
    assert network.notes == {"conv": DEQUANTISED}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_weight_that_is_rounded_to_integers_and_back_is_what_onnx_makes_of_it(
    dtype: Any, axis: int, numbers: np.random.Generator, tmp_path: Path
) -> None:
    weight = numbers.normal(size=(3, 2, 2, 4)).astype(np.float32)
    count = weight.shape[axis]
    scales, points = numbers.random(count, np.float32) / 50, numbers.integers(0, 100, size=count).astype(dtype)
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
        helper.make_node("Conv", ["x", "y"], ["r"], "conv"),
    ]
    proto = model(nodes, [tensor("w", weight), tensor("s", scales), tensor("z", points)])
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": np.zeros((1, 2, 4, 4), np.float32)})
    network = opened(tmp_path / "m", proto)
    assert torch.equal(network.model.get_parameter("conv.weight"), torch.from_numpy(np.asarray(wanted)))
    assert "QuantizeLinear, which rounds them" in network.notes["conv"]


def linear(numbers: np.random.Generator, channels: int | None, *, bias: bool = True) -> tuple[ModelProto, Any]:
    """A QLinearConv whose scales are powers of two, so that no sum is rounded, and what it takes for its integers."""
    shape = () if channels is None else (channels,)
    scales = np.float32(2.0) ** numbers.integers(-6, -2, size=shape)
    tensors = [
        tensor("xs", np.float32(0.25)),
        tensor("xz", np.uint8(3)),
        tensor("w", numbers.integers(-9, 9, size=(3, 2, 2, 3)).astype(np.int8)),
        tensor("ws", scales.astype(np.float32)),
        tensor("wz", np.zeros(shape, np.int8)),
        tensor("ys", np.float32(2.0**-8)),
        tensor("yz", np.uint8(0)),
        tensor("b", numbers.integers(-9, 9, size=3).astype(np.int32)),
    ]
    names = ["q", *(each.name for each in tensors)]
    node = helper.make_node("QLinearConv", names if bias else names[:-1], ["y"], "conv", pads=[1, 0, 1, 0])
    return model([node], tensors), scales


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_of_integers_is_the_convolution_of_what_they_stand_for(
    channels: int | None, bias: bool, numbers: np.random.Generator, tmp_path: Path
) -> None:
    """The scales are powers of two and the sums small, so that nothing is rounded but the result."""
    proto, _ = linear(numbers, channels, bias=bias)
    network = opened(tmp_path / "m", proto)
    q = numbers.integers(0, 9, size=(1, 2, 4, 6)).astype(np.uint8)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"q": q, "x": q})
    y = layer(network, "conv")((torch.from_numpy(q).float() - 3) * 0.25)
    rounded = torch.round(y * 2.0**8).clamp(0, 255)
    assert torch.equal(rounded, torch.from_numpy(np.asarray(wanted)).float())
    assert rounded.unique().numel() > 10
    assert DEQUANTISED in network.notes["conv"]
    assert "rounds its input and its result" in network.notes["conv"]


@pytest.mark.parametrize("points", [None, (), (3,)])
def test_an_integer_convolution_is_that_of_its_weights_less_their_zero_point(
    points: tuple[int, ...] | None, numbers: np.random.Generator, tmp_path: Path
) -> None:
    tensors = [
        tensor("w", numbers.integers(0, 255, size=(3, 2, 2, 3)).astype(np.uint8)),
        tensor("xz", np.uint8(7)),
        tensor("wz", numbers.integers(0, 255, size=points or ()).astype(np.uint8)),
    ]
    names = ["q", "w", "xz"] if points is None else ["q", "w", "xz", "wz"]
    proto = model([helper.make_node("ConvInteger", names, ["y"], "conv", strides=[1, 2])], tensors)
    q = numbers.integers(0, 255, size=(1, 2, 4, 6)).astype(np.uint8)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"q": q, "x": q})
    network = opened(tmp_path / "m", proto)
    y = layer(network, "conv")(torch.from_numpy(q).float() - 7)
    assert torch.equal(y, torch.from_numpy(np.asarray(wanted)).float())
    assert "apply the scale" in network.notes["conv"]


def dynamic(tail: list[NodeProto], scale: Any) -> ModelProto:
    """What dynamic quantisation writes: integers, their sum and a product with both scales, as the tail says."""
    head = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "xs", "xz"]),
        helper.make_node("ConvInteger", ["q", "w_quantized", "xz", "wz"], ["sums"], "conv"),
        helper.make_node("Mul", ["xs", "ws"], ["scales"]),
    ]
    integers = np.random.default_rng(5).integers(0, 255, size=(3, 2, 2, 3)).astype(np.uint8)
    tensors = [tensor("w_quantized", integers), tensor("wz", np.uint8(99)), tensor("ws", scale)]
    return model([*head, *tail], [*tensors, tensor("b", np.ones((1, 3, 1, 1), np.int32))])


TAILS: dict[str, list[NodeProto]] = {
    "at once": [helper.make_node("Cast", ["sums"], ["f"], to=1), helper.make_node("Mul", ["f", "scales"], ["y"])],
    "the other way round": [
        helper.make_node("Cast", ["sums"], ["f"], to=1),
        helper.make_node("Mul", ["scales", "f"], ["y"]),
    ],
    "behind a bias": [
        helper.make_node("Add", ["sums", "b"], ["more"]),
        helper.make_node("Cast", ["more"], ["f"], to=1),
        helper.make_node("Mul", ["f", "scales"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (1, 3, 1, 1)])
def test_an_integer_convolution_has_the_scale_that_its_result_is_multiplied_by(
    name: str, shape: tuple[int, ...], numbers: np.random.Generator, tmp_path: Path
) -> None:
    scale = np.asarray(numbers.random(shape, np.float32)) / np.float32(50)
    network = opened(tmp_path / "m", dynamic(TAILS[name], scale))
    integers = network.checkpoint.state_dict["w_quantized"].float()
    wanted = (integers - 99) * torch.from_numpy(np.asarray(scale)).reshape(-1, 1, 1, 1)
    assert torch.equal(network.model.get_parameter("conv.weight"), wanted)
    assert DEQUANTISED in network.notes["conv"]


def test_a_dynamically_quantised_layer_computes_what_onnx_computes(
    numbers: np.random.Generator, tmp_path: Path
) -> None:
    """The scale is a power of two, so that the layer's weights and sums are not rounded; onnx rounds one product."""
    proto = dynamic(TAILS["at once"], np.float32(2.0**-6))
    x = numbers.normal(size=(1, 2, 6, 7)).astype(np.float32)
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in ("q", "xs", "xz"))
    wanted, q, scale, point = ReferenceEvaluator(proto).run(None, {"x": x})
    y = layer(opened(tmp_path / "m", proto), "conv")(torch.from_numpy(np.asarray(q)).float() - float(point))
    assert torch.equal(y * 2.0**6 * (torch.tensor(scale) * 2.0**-6), torch.from_numpy(np.asarray(wanted)))


NO_SCALE: dict[str, list[NodeProto]] = {
    "none": [],
    "two products": [
        helper.make_node("Cast", ["sums"], ["f"], to=1),
        helper.make_node("Mul", ["f", "scales"], ["y"]),
        helper.make_node("Mul", ["f", "ws"], ["a"]),
    ],
    "a computed product": [
        helper.make_node("Cast", ["sums"], ["f"], to=1),
        helper.make_node("Mul", ["f", "xs"], ["y"]),
    ],
    "a square": [helper.make_node("Cast", ["sums"], ["f"], to=1), helper.make_node("Mul", ["f", "f"], ["y"])],
}


@pytest.mark.parametrize("name", NO_SCALE)
def test_an_integer_convolution_without_a_known_scale_keeps_its_integers(name: str, tmp_path: Path) -> None:
    network = opened(tmp_path / "m", dynamic(NO_SCALE[name], np.float32(0.02)))
    integers = network.checkpoint.state_dict["w_quantized"].float()
    assert torch.equal(network.model.get_parameter("conv.weight"), integers - 99)
    assert "apply the scale" in network.notes["conv"]


@pytest.mark.parametrize("shape", [(3,), (2,), (2, 3, 1, 1)])
def test_a_scale_that_is_not_one_number_a_channel_is_not_taken(shape: tuple[int, ...], tmp_path: Path) -> None:
    network = opened(tmp_path / "m", dynamic(TAILS["at once"], np.ones(shape, np.float32)))
    assert "apply the scale" in network.notes["conv"]


def changed(name: str, values: Any) -> list[TensorProto]:
    """What a QLinearConv is given, with one part changed."""
    proto, _ = linear(np.random.default_rng(3), 3)
    return [tensor(name, values) if each.name == name else each for each in proto.graph.initializer]


QUANTISED_WRONG: dict[str, tuple[list[TensorProto], str]] = {
    "scales of another count": (changed("ws", np.ones(2, np.float32)), "the scale of its weight does not fit it"),
    "scales of two dimensions": (changed("ws", np.ones((3, 1), np.float32)), "the scale of its weight does not fit"),
    "scales of double precision": (changed("ws", np.ones(3)), "the scale of its weight is computed"),
    "zero points of another type": (changed("wz", np.zeros(3, np.uint8)), "the zero point of its weight"),
    "zero points of another count": (changed("wz", np.zeros(2, np.int8)), "the zero point of its weight"),
    "weights of single precision": (changed("w", np.ones((3, 2, 2, 3), np.float32)), "not of integers of 8 bits"),
    "a bias of single precision": (changed("b", np.ones(3, np.float32)), "its bias is not of int32"),
    "two input scales": (changed("xs", np.ones(2, np.float32)), "the scale of its input"),
}


@pytest.mark.parametrize("name", QUANTISED_WRONG)
def test_integers_that_do_not_say_what_they_stand_for_are_refused(name: str, tmp_path: Path) -> None:
    tensors, reason = QUANTISED_WRONG[name]
    proto, _ = linear(np.random.default_rng(3), 3)
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(tensors)
    found = checkpoint_of(tmp_path / "m", proto).convolutions["conv"]
    assert found.spec is None
    assert reason in str(found.problem)


@pytest.mark.parametrize("attributes", [{"block_size": 2}, {"axis": 2}, {"axis": 9}, {"output_dtype": 10}])
def test_blocks_axes_and_types_that_do_not_fit_are_refused(
    attributes: dict[str, Any], numbers: np.random.Generator, tmp_path: Path
) -> None:
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["v"], **{"axis": 0, **attributes})
    proto = model([node, helper.make_node("Conv", ["x", "v"], ["y"], "conv")], quantised(numbers, np.int8, 3))
    found = checkpoint_of(tmp_path / "m", proto).convolutions["conv"]
    assert "its weight is computed by DequantizeLinear" in str(found.problem)


def test_a_weight_that_comes_through_too_many_nodes_is_refused(tmp_path: Path) -> None:
    kinds = [TensorProto.FLOAT16, TensorProto.FLOAT] * 300
    nodes = [helper.make_node("Cast", [f"v{n}"], [f"v{n + 1}"], to=kind) for n, kind in enumerate(kinds)]
    nodes.append(helper.make_node("Conv", ["x", "v600"], ["y"], "conv"))
    proto = model(nodes, [tensor("v0", np.ones((1, 1, 1, 1), np.float32))])
    assert "is computed by Cast" in str(checkpoint_of(tmp_path / "m", proto).convolutions["conv"].problem)


def test_dequantised_weights_are_charged_before_they_exist(tmp_path: Path) -> None:
    """300 of 1 MB each come from one megabyte of integers."""
    nodes: list[NodeProto] = []
    for number in range(300):
        nodes.append(helper.make_node("DequantizeLinear", ["q", "s"], [f"v{number}"]))
        nodes.append(helper.make_node("Conv", ["x", f"v{number}"], [f"y{number}"], f"c{number}"))
    proto = model(nodes, [tensor("q", np.ones((2**18, 4, 1, 1), np.int8)), tensor("s", np.float32(1))])
    with pytest.raises(CheckpointError, match=r"more memory|overlap"):
        checkpoint_of(tmp_path / "m", proto)
