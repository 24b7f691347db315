"""Convolutions over integers are the convolutions of the numbers that the integers stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.onnx.scopes import DEQUANTISED
from tests.onnx_files import convolution_in, network, port, read, tensor


def integers(*shape: int, dtype: Any = np.uint8, least: int = 0, most: int = 255) -> Any:
    return np.asarray(np.random.default_rng(3).integers(least, most, size=shape)).astype(dtype)


def model(node: NodeProto, **tensors: Any) -> ModelProto:
    stored = [tensor(name, values) for name, values in tensors.items()]
    return network([node], stored, inputs=[port("q", None, TensorProto.UINT8)], outputs=[port("y", None)], opset=21)


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
    return model(node, **{**tensors, **changed})


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_of_integers_is_that_of_the_numbers_that_they_stand_for(
    channels: int | None, bias: bool, tmp_path: Path
) -> None:
    quantised, q = linear(channels, bias=bias), integers(1, 2, 4, 6, most=9)
    (wanted,) = ReferenceEvaluator(quantised).run(None, {"q": q})
    y = convolution_in(quantised, "conv", tmp_path / "m.onnx")((torch.from_numpy(q).float() - 3) * 0.25)
    rounded = torch.round(y * 2.0**8).clamp(0, 255)
    assert torch.equal(rounded, torch.from_numpy(np.array(wanted)).float())
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
    integer = model(node, w=integers(3, 2, 2, 3), xz=np.uint8(7), wz=integers(*(points or ())))
    q = integers(1, 2, 4, 6)
    (wanted,) = ReferenceEvaluator(integer).run(None, {"q": q})
    y = convolution_in(integer, "conv", tmp_path / "m.onnx")(torch.from_numpy(q).float() - 7)
    assert torch.equal(y, torch.from_numpy(np.array(wanted)).float())
    assert "later nodes apply the scale" in str(read(integer, tmp_path / "m.onnx")[1]["conv"].note)


def test_integers_that_do_not_say_what_they_stand_for_are_refused(tmp_path: Path) -> None:
    for changed in ({"ws": np.ones(2, np.float32)}, {"wz": np.zeros(2, np.int8)}, {"xs": np.ones(2, np.float32)}):
        with pytest.raises(CheckpointError, match="is damaged"):
            read(linear(3, **changed), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("operator", "domain", "reason"),
    [
        ("DeformConv", "", "DeformConv is not a plain convolution"),
        ("FusedConv", "com.microsoft", "it is an operator of 'com.microsoft', not of ONNX"),
    ],
)
def test_other_convolutions_are_refused_by_name(operator: str, domain: str, reason: str, tmp_path: Path) -> None:
    node = helper.make_node(operator, ["q", "w"], ["y"], "conv", domain=domain)
    assert read(model(node, w=np.ones((1, 1, 1, 1), np.float32)), tmp_path / "m.onnx")[1]["conv"].problem == reason
