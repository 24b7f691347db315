"""Convolutions along one, two and three axes, transposed or not, are read from every file that describes them."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

from conv2attn.convert import ConvSpec, convert_model
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.open import open_network
from conv2attn.convert.spec import Convolution
from conv2attn.proofs.evidence.strategies import convolution_of, convolutions_with_input, every_spec, input_sizes


def whole_numbers(*shape: int) -> Tensor:
    """Small integers, whose products are summed without rounding in any order."""
    return torch.randint(-4, 5, shape).float()


def with_whole_numbers(spec: ConvSpec) -> Convolution:
    conv = convolution_of(spec)
    for parameter in conv.parameters():
        parameter.data = whole_numbers(*parameter.shape)
    return conv.eval()


# ONNX


def node_of(conv: Convolution, spec: ConvSpec, pads: list[int], **more: Any) -> ModelProto:
    """A model of one node with the weights of a convolution."""
    tensors = [numpy_helper.from_array(value.detach().numpy(), f"a.{name}") for name, value in conv.named_parameters()]
    attributes = {"strides": spec.stride, "dilations": spec.dilation, "group": spec.groups, "pads": pads, **more}
    operator = "ConvTranspose" if spec.transposed else "Conv"
    names = ["x", *(tensor.name for tensor in tensors)]
    node = helper.make_node(operator, names, ["y"], "/a/Conv", kernel_shape=spec.kernel_size, **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph([node], "graph", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run_by_onnx(model: ModelProto, x: Tensor) -> Tensor:
    (y,) = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
    return torch.from_numpy(np.asarray(y))


def pads_of(spec: ConvSpec) -> list[int]:
    """The pads of a node: before every axis, then after."""
    pads = spec.padding if spec.transposed else spec.pads
    pairs = [pad if isinstance(pad, tuple) else (pad, pad) for pad in pads]
    return [int(pair[end]) for end in (0, 1) for pair in pairs]


@settings(max_examples=60)
@given(every_spec(), st.data())
def test_a_node_is_the_convolution_that_onnx_itself_computes(spec: ConvSpec, data: st.DataObject) -> None:
    spec = replace(spec, padding_mode="zeros")
    conv, size = with_whole_numbers(spec), data.draw(input_sizes(spec))
    more = {"output_padding": spec.output_padding} if spec.transposed else {}
    model = node_of(conv, spec, pads_of(spec), **more)
    x = whole_numbers(2, spec.in_channels, *size)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m").write_bytes(model.SerializeToString())
        network = open_network(Path(folder, "m"))
        cnn = network.cnn()
        found = cnn.get_submodule("a")
        assert type(found) is type(conv)
        converted = convert_model(cnn).model.get_submodule("a")
        y = conv(x)
        assert torch.equal(found(x), y)
        assert torch.equal(converted(x), y)
    if not spec.transposed or (spec.groups == 1 and not any(spec.output_padding)):  # what onnx's evaluator can
        assert torch.equal(y, run_by_onnx(model, x))


UNEVEN: dict[str, tuple[list[int], dict[str, Any], Any]] = {
    "less after than before": ([1, 1, 1, 0], {}, ((1, 1), (0, 1))),
    "less after, and more outputs": ([1, 1, 1, 0], {"output_padding": [1, 1]}, ((1, 1), (1, 2))),
    "more after than before": ([1, 0, 1, 1], {}, (((1, 1), (0, 1)), (0, 0))),
    "valid, whatever the pads": ([1, 1, 1, 1], {"auto_pad": "VALID"}, ((0, 0), (0, 0))),
    "the same as before": ([1, 1, 0, 1], {"output_padding": [0, 0]}, ((1, 1), (1, 0))),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_pads_of_a_transposed_node_are_output_padding_or_pairs(name: str, tmp_path: Path) -> None:
    pads, more, wanted = UNEVEN[name]
    spec = ConvSpec(2, 3, (3, 2), stride=(2, 3), transposed=True)
    conv = with_whole_numbers(spec)
    model = node_of(conv, spec, pads, **more)
    (tmp_path / "m").write_bytes(model.SerializeToString())
    stored = read_checkpoint(tmp_path / "m").convolutions["a"]
    assert stored.spec is not None, stored.problem
    assert (stored.spec.padding, stored.spec.output_padding) == wanted
    x = whole_numbers(1, 2, 4, 5)
    found = open_network(tmp_path / "m").cnn().get_submodule("a")
    if "auto_pad" in more:
        model.graph.node[0].attribute.remove(
            next(each for each in model.graph.node[0].attribute if each.name == "pads")
        )
    assert torch.equal(found(x), run_by_onnx(model, x))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"output_shape": [9, 9]}, "output_shape"),
        ({"auto_pad": "SAME_UPPER", "strides": [4, 4]}, "auto_pad"),
        ({"output_padding": [5, 5]}, "output_padding must be"),
        ({"output_padding": [1]}, "output_padding is not one number for each axis"),
        ({"output_padding": 1}, "output_padding is not one number for each axis"),
        ({"group": 0}, "must be an integer from 1"),
        ({"group": 3}, "groups must divide"),
        ({"strides": [1]}, "strides are not one number for each axis"),
    ],
)
def test_a_transposed_node_that_no_class_computes_is_refused(
    attributes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    spec = ConvSpec(2, 3, (3, 2), transposed=True)
    weight = numpy_helper.from_array(np.ones((2, 3, 3, 2), np.float32), "w")
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "a", **attributes)
    model = helper.make_model(helper.make_graph([node], "g", [], [], [weight]))
    (tmp_path / "m").write_bytes(model.SerializeToString())
    found = read_checkpoint(tmp_path / "m").convolutions["a"]
    assert found.spec is None
    assert reason in str(found.problem)
    assert spec.weight_shape == (2, 3, 3, 2)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 3, 1, 1, 1, 1), ()])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_a_weight_of_another_number_of_axes_is_refused(shape: tuple[int, ...], operator: str, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones(shape, np.float32), "w")
    node = helper.make_node(operator, ["x", "w"], ["y"], "a")
    (tmp_path / "m").write_bytes(
        helper.make_model(helper.make_graph([node], "g", [], [], [weight])).SerializeToString()
    )
    assert read_checkpoint(tmp_path / "m").convolutions["a"].spec is None


# Pickled modules and exported programs


@settings(max_examples=40)
@given(convolutions_with_input(integers=True, specs=every_spec()))
def test_a_pickled_module_is_the_convolution_that_was_saved(case: tuple[Convolution, Tensor]) -> None:
    conv, x = case
    with tempfile.TemporaryDirectory() as folder:
        torch.save(nn.Sequential(conv), Path(folder, "m"))
        network = open_network(Path(folder, "m"))
        cnn = network.cnn()
        assert repr(cnn.get_submodule("0")) == repr(conv)
        assert torch.equal(convert_model(cnn).model(x), conv(x))


PROGRAMS: list[tuple[type[nn.Module], dict[str, Any]]] = [
    (nn.Conv1d, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    (nn.Conv1d, {"kernel_size": 5, "padding": "same", "padding_mode": "circular"}),
    (nn.Conv3d, {"kernel_size": (1, 2, 3), "padding": (0, 1, 2), "groups": 2, "bias": False}),
    (nn.Conv3d, {"kernel_size": (1, 2, 3), "padding": (0, 1, 2), "padding_mode": "replicate"}),
    (nn.Conv2d, {"kernel_size": (3, 2), "padding": (2, 1), "padding_mode": "reflect"}),
    (nn.ConvTranspose1d, {"kernel_size": 3, "stride": 3, "padding": 1, "output_padding": 2}),
    (nn.ConvTranspose2d, {"kernel_size": (3, 2), "stride": (2, 1), "output_padding": (1, 0), "groups": 2}),
    (nn.ConvTranspose3d, {"kernel_size": 2, "stride": (1, 2, 2), "dilation": (2, 1, 1), "bias": False}),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_s_node_is_the_convolution_that_was_exported(number: int, tmp_path: Path) -> None:
    kind, options = PROGRAMS[number]
    conv = kind(4, 6, **options).eval()
    assert isinstance(conv, Convolution)
    for parameter in conv.parameters():
        parameter.data = whole_numbers(*parameter.shape)
    x = whole_numbers(2, 4, *(9, 8, 7)[: len(conv.kernel_size)])
    with warnings.catch_warnings(action="ignore"):
        torch.export.save(torch.export.export(nn.Sequential(conv), (x,)), tmp_path / "m.pt2")
    cnn = open_network(tmp_path / "m.pt2", trust=True).cnn()
    y = cnn(x)
    assert torch.equal(y, conv(x))
    assert torch.equal(convert_model(cnn, inplace=True).model(x), y)
