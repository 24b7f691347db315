"""Convolutions over integers are the convolutions of the numbers that the integers stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conv2attn.convert.files.readers.onnx.scopes import DEQUANTISED
from tests.onnx_files import convolution_in, network, port, read, tensor


def integers(*shape: int, dtype: Any = np.uint8, least: int = 0, most: int = 255) -> Any:
    return np.asarray(np.random.default_rng(3).integers(least, most, size=shape)).astype(dtype)


def model(nodes: list[NodeProto], outputs: tuple[str, ...] = ("y",), **tensors: Any) -> ModelProto:
    return network(
        nodes,
        [tensor(name, values) for name, values in tensors.items()],
        inputs=[port("x", None), port("q", None, TensorProto.UINT8)],
        outputs=[port(name, None) for name in outputs],
        opset=21,
    )


def computed(of: ModelProto, **feeds: Any) -> list[torch.Tensor]:
    """The outputs that onnx's reference computes."""
    given = {"x": np.zeros((1, 2, 4, 6), np.float32), "q": np.zeros((1, 2, 4, 6), np.uint8), **feeds}
    return [torch.from_numpy(np.array(output)).float() for output in ReferenceEvaluator(of).run(None, given)]


def linear(channels: int | None, *, bias: bool = True, **changed: Any) -> ModelProto:
    """A QLinearConv whose scales are powers of two, so that no sum is rounded."""
    shape = () if channels is None else (channels,)
    tensors = {
        "xs": np.float32(0.25),
        "xz": np.uint8(3),
        "w": integers(3, 2, 2, 3, dtype=np.int8, least=-9, most=9),
        "ws": np.float32(2.0) ** integers(*shape, dtype=np.int32, least=-6, most=-2).astype(np.float32),
        "wz": np.zeros(shape, np.int8),
        "ys": np.float32(2.0**-8),
        "yz": np.uint8(0),
        "b": integers(3, dtype=np.int32, least=-9, most=9),
    }
    names = ["q", *tensors] if bias else ["q", *tensors][:-1]
    node = helper.make_node("QLinearConv", names, ["y"], "conv", pads=[1, 0, 1, 0])
    return model([node], **{**tensors, **changed})


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_of_integers_is_that_of_the_numbers_that_they_stand_for(
    channels: int | None, bias: bool, tmp_path: Path
) -> None:
    quantised, q = linear(channels, bias=bias), integers(1, 2, 4, 6, most=9)
    (wanted,) = computed(quantised, q=q)
    y = convolution_in(quantised, "conv", tmp_path / "m.onnx")((torch.from_numpy(q).float() - 3) * 0.25)
    rounded = torch.round(y * 2.0**8).clamp(0, 255)
    assert torch.equal(rounded, wanted)
    assert rounded.unique().numel() > 10
    note = read(quantised, tmp_path / "m.onnx")[1]["conv"].note
    assert DEQUANTISED in str(note)
    assert "rounds its input and its result" in str(note)


@pytest.mark.parametrize("points", [None, (), (3,)])
def test_an_integer_convolution_is_that_of_its_weights_less_their_zero_point(
    points: tuple[int, ...] | None, tmp_path: Path
) -> None:
    names = ["q", "w", "xz"] if points is None else ["q", "w", "xz", "wz"]
    node = helper.make_node("ConvInteger", names, ["y"], "conv", strides=[1, 2])
    integer = model([node], w=integers(3, 2, 2, 3), xz=np.uint8(7), wz=integers(*(points or ())))
    q = integers(1, 2, 4, 6)
    (wanted,) = computed(integer, q=q)
    assert torch.equal(convolution_in(integer, "conv", tmp_path / "m.onnx")(torch.from_numpy(q).float() - 7), wanted)
    assert "later nodes apply the scale" in str(read(integer, tmp_path / "m.onnx")[1]["conv"].note)


def dynamic(tail: list[NodeProto], scale: Any) -> ModelProto:
    """The nodes of dynamic quantisation: integers, their sum, and a product with both scales as the tail says."""
    head = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["i", "xs", "xz"]),
        helper.make_node("ConvInteger", ["i", "w_quantized", "xz", "wz"], ["sums"], "conv"),
        helper.make_node("Mul", ["xs", "ws"], ["scales"]),
    ]
    tensors = {"w_quantized": integers(3, 2, 2, 3), "wz": np.uint8(99), "ws": np.asarray(scale)}
    return model([*head, *tail], ("y", "i", "xs", "xz"), **tensors, b=np.ones((1, 3, 1, 1), np.int32))


CAST, PRODUCT = helper.make_node("Cast", ["sums"], ["f"], to=1), helper.make_node("Mul", ["f", "scales"], ["y"])
SCALED: dict[str, list[NodeProto]] = {
    "at once": [CAST, PRODUCT],
    "the other way round": [CAST, helper.make_node("Mul", ["scales", "f"], ["y"])],
    "behind a bias": [
        helper.make_node("Add", ["sums", "b"], ["more"]),
        helper.make_node("Cast", ["more"], ["f"], to=1),
        PRODUCT,
    ],
}
UNSCALED: dict[str, list[NodeProto]] = {
    "none": [],
    "two products": [CAST, PRODUCT, helper.make_node("Mul", ["f", "ws"], ["a"])],
    "a computed product": [CAST, helper.make_node("Mul", ["f", "xs"], ["y"])],
    "a square": [CAST, helper.make_node("Mul", ["f", "f"], ["y"])],
}


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (1, 3, 1, 1)])
def test_an_integer_convolution_has_the_scale_that_its_result_is_multiplied_by(
    name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    scale = np.asarray(np.random.default_rng(7).random(shape, np.float32) / np.float32(50))
    tensors, layers = read(dynamic(SCALED[name], scale), tmp_path / "m.onnx")
    wanted = (tensors["w_quantized"].float() - 99) * torch.from_numpy(scale).reshape(-1, 1, 1, 1)
    assert torch.equal(tensors[layers["conv"].weight], wanted)
    assert DEQUANTISED in str(layers["conv"].note)


def test_a_dynamically_quantised_layer_computes_what_onnx_computes(tmp_path: Path) -> None:
    """The scale is a power of two, so that the layer's weights and sums are not rounded; onnx rounds one product."""
    quantised = dynamic(SCALED["at once"], np.float32(2.0**-6))
    x = np.random.default_rng(7).normal(size=(1, 2, 6, 7)).astype(np.float32)
    wanted, q, scale, point = computed(quantised, x=x)
    y = convolution_in(quantised, "conv", tmp_path / "m.onnx")(q - point)
    assert torch.equal(y * 2.0**6 * (scale * 2.0**-6), wanted)


@pytest.mark.parametrize("name", UNSCALED)
def test_an_integer_convolution_without_one_known_scale_keeps_its_integers(name: str, tmp_path: Path) -> None:
    tensors, layers = read(dynamic(UNSCALED[name], np.float32(0.02)), tmp_path / "m.onnx")
    assert torch.equal(tensors[layers["conv"].weight], tensors["w_quantized"].float() - 99)
    assert "apply the scale" in str(layers["conv"].note)


@pytest.mark.parametrize("shape", [(3,), (2,), (2, 3, 1, 1)])
def test_a_scale_that_is_not_one_number_a_channel_is_not_taken(shape: tuple[int, ...], tmp_path: Path) -> None:
    layers = read(dynamic(SCALED["at once"], np.ones(shape, np.float32)), tmp_path / "m.onnx")[1]
    assert "apply the scale" in str(layers["conv"].note)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "scales of another count": ({"ws": np.ones(2, np.float32)}, "the scale of its weight is not one number"),
    "scales of double precision": ({"ws": np.ones(3)}, "the scale of its weight is not one number of float32"),
    "zero points of another type": ({"wz": np.zeros(3, np.uint8)}, "the zero point of its weight does not fit"),
    "zero points of another count": ({"wz": np.zeros(2, np.int8)}, "the zero point of its weight does not fit"),
    "weights of single precision": ({"w": np.ones((3, 2, 2, 3), np.float32)}, "not of integers of 8 bits"),
    "a bias of single precision": ({"b": np.ones(3, np.float32)}, "its bias is not one number of int32"),
    "two input scales": ({"xs": np.ones(2, np.float32)}, "the scale of its input"),
}


@pytest.mark.parametrize("name", WRONG)
def test_integers_that_do_not_say_what_they_stand_for_are_refused(name: str, tmp_path: Path) -> None:
    changed, reason = WRONG[name]
    layer = read(linear(3, **changed), tmp_path / "m.onnx")[1]["conv"]
    assert layer.spec is None
    assert reason in str(layer.problem)


@pytest.mark.parametrize(
    ("operator", "domain", "reason"),
    [
        ("DeformConv", "", "DeformConv is not a plain convolution"),
        ("FusedConv", "com.microsoft", "it is an operator of 'com.microsoft', not of ONNX"),
    ],
)
def test_other_convolutions_are_refused_by_name(operator: str, domain: str, reason: str, tmp_path: Path) -> None:
    node = helper.make_node(operator, ["x", "w"], ["y"], "conv", domain=domain)
    assert read(model([node], w=np.ones((1, 1, 1, 1), np.float32)), tmp_path / "m.onnx")[1]["conv"].problem == reason
