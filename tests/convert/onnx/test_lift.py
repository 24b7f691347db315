"""An older file, brought to opset 11, computes what it did bit for bit, or is refused by the operator's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from conv2attn.convert import convert_model
from conv2attn.convert.errors import CheckpointError, OtherNetworkError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.onnx import lift, write
from conv2attn.convert.onnx.beside import Run, drawn_run, unlike
from tests.onnx_files import network, port, small_integers, tensor

FLOAT, DOUBLE, INT64, BOOL = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL
SHAPE = (2, 3, 6, 7)


def one_node(
    operator: str, opset: int, inputs: dict[str, Any] | None = None, *, kinds: tuple[int, int] = (FLOAT, FLOAT),
    outputs: int = 1, inner: bool = False, **attributes: Any,
) -> ModelProto:  # fmt: skip
    """A network of one operator, on its input and constants; in the branches of an If, with ``inner``."""
    names = ["y", "z"][:outputs]
    node = helper.make_node(operator, ["x", *(inputs or {})], names, name="own", **attributes)
    held = [tensor(name, values) for name, values in (inputs or {}).items()]
    ends = [port("y", None, kinds[1]), port("z", None, INT64)][:outputs]
    if inner:
        branches = [helper.make_graph([node], name, [], ends, held) for name in ("one", "other")]
        node = helper.make_node("If", ["flag"], names, then_branch=branches[0], else_branch=branches[1])
        held = [tensor("flag", np.array(True))]
    return network([node], held, inputs=[port("x", SHAPE, kinds[0])], outputs=ends, opset=opset)


def lifted(model: ModelProto, ran: Run) -> None:
    """Lifts a model, whose bits must stay."""
    made = lift.lifted(onnx.ModelProto.FromString(model.SerializeToString()), Path("m.onnx"))
    assert lift.opset_of(made) >= lift.OPSET
    assert unlike(ran.outputs, ran.of(made)) is None


FACTORS = st.sampled_from([1.0, 1.3, 2.0, 3.0, 0.5]) | st.integers(25, 400).map(lambda hundredths: hundredths / 100)


@settings(deadline=None)
@given(st.sampled_from(["nearest", "linear"]), FACTORS, FACTORS, st.sampled_from([7, 9, 10]), st.booleans())
def test_pixels_are_read_where_they_were_at_any_factor(
    mode: str, rows: float, columns: float, opset: int, inner: bool
) -> None:
    scales = np.array([1, 1, rows, columns], np.float32)
    given = {"scales": scales if opset == 10 else np.maximum(scales, 1)}
    if opset == 7:
        model = one_node("Upsample", 7, inner=inner, mode=mode, scales=given["scales"].tolist())
    else:
        model = one_node("Resize" if opset == 10 else "Upsample", opset, given, inner=inner, mode=mode)
    factors = given["scales"]
    if mode == "nearest" and (factors > 1).any() and (factors < 1).any():
        with pytest.raises(CheckpointError, match="Resize"):
            lift.lifted(model, Path("m.onnx"))
    else:
        lifted(model, drawn_run(model))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_factors_may_be_computed_from_an_input(mode: str) -> None:
    nodes = [
        helper.make_node("Identity", ["scales"], ["found"]),
        helper.make_node("Resize", ["x", "found"], ["y"], mode=mode),
    ]
    inputs = [port("x", SHAPE), port("scales", [4])]
    model = network(nodes, [], inputs=inputs, outputs=[port("y", None)], opset=10)
    for factors in ([1, 1, 2.5, 0.4], [1, 1, 1.5, 3], [1, 1, 0.7, 0.7]):
        ran = drawn_run(one_node("Resize", 10, {"scales": np.array(factors, np.float32)}, mode=mode))
        made = lift.lifted(onnx.ModelProto.FromString(model.SerializeToString()), Path("m.onnx"))
        feeds = {**ran.feeds, "scales": np.array(factors, np.float32)}
        assert unlike(ran.outputs, Run(ran.engine, feeds, {}).of(made)) is None


CHANNEL = small_integers(3)
SQUARE: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 2]}
STATISTICS = {name: np.abs(small_integers(3)) + 1 for name in ("scale", "b", "mean", "var")}
OPERATORS: list[ModelProto] = [
    *(one_node(name, 6, {"w": CHANNEL}, broadcast=1, axis=1) for name in ("Add", "Sub", "Mul", "Div")),
    *(one_node(name, 6, {"w": small_integers(7)}, broadcast=1) for name in ("Add", "Mul")),
    one_node("Greater", 6, {"w": CHANNEL}, kinds=(FLOAT, BOOL), broadcast=1, axis=1),
    one_node("And", 6, {"w": CHANNEL > 0}, kinds=(BOOL, BOOL), broadcast=1, axis=1),
    one_node("PRelu", 6, {"slope": CHANNEL}),
    one_node("PRelu", 6, {"slope": small_integers(1)}),
    one_node("BatchNormalization", 6, STATISTICS, is_test=1),
    one_node("BatchNormalization", 7, STATISTICS),
    one_node("Dropout", 6, is_test=1),
    one_node("Dropout", 9),
    *(one_node("Slice", 9, starts=[1, -5], ends=[2**40, -1], axes=[1, 3], inner=inner) for inner in (False, True)),
    one_node("Slice", 7, starts=[0, 1], ends=[1, 2]),
    one_node("TopK", 9, k=3, axis=2, outputs=2),
    one_node("Clip", 10, min=-0.5),
    one_node("Clip", 10, min=-0.5, max=0.25),
    one_node("Clip", 10, max=0.25, inner=True),
    one_node("Pad", 10, pads=[0, 0, 1, 2, 0, 0, 3, 0], value=1.5),
    *(one_node("Pad", 10, pads=[0, 0, 1, 2, 0, 0, 3, 0], mode=mode) for mode in ("reflect", "edge")),
    one_node("Pad", 10, pads=[0, 0, 1, 2, 0, 0, -3, 0], kinds=(DOUBLE, DOUBLE), value=0.1),
    one_node("Scatter", 10, {"at": np.ones((1, 2, 1, 3), np.int64), "new": small_integers(1, 2, 1, 3)}, axis=2),
    *(one_node(name, 8, axis=axis) for name in ("Softmax", "LogSoftmax", "Hardmax") for axis in (0, 1, 3)),
    *(one_node("MaxPool", opset, auto_pad="SAME_LOWER", **SQUARE) for opset in (7, 8)),
    one_node("MaxPool", 10, ceil_mode=1, dilations=[1, 2], **SQUARE),
    *(one_node("AveragePool", 7, count_include_pad=n, pads=[1, 0, 0, 1], **SQUARE) for n in (0, 1)),
    one_node("AveragePool", 10, ceil_mode=1, **SQUARE),
    one_node("LpPool", 7, p=1, **SQUARE),
    one_node("Split", 7, axis=3, split=[7]),
    one_node("Flatten", 8, axis=2),
    one_node("Reshape", 7, {"shape": np.array([0, -1])}),
    one_node("Unsqueeze", 7, axes=[0, 3]),
    *(one_node(f"Reduce{name}", 7, axes=[1, 3], keepdims=0) for name in ("Sum", "Mean", "Max", "L2", "LogSumExp")),
    *(one_node(name, 8, kinds=(FLOAT, INT64), axis=2) for name in ("ArgMax", "ArgMin")),
    one_node("Cast", 7, kinds=(FLOAT, INT64), to=INT64),
    one_node("Gather", 8, {"at": np.array([[0, 2]])}, axis=1),
    one_node("Concat", 7, {"w": small_integers(*SHAPE)}, axis=1),
    one_node("DepthToSpace", 9, blocksize=1),
    one_node("Pow", 7, {"w": np.array([2], np.float32)}),
    one_node("Max", 8, {"w": CHANNEL[:1]}),
    one_node("InstanceNormalization", 7, {"scale": CHANNEL, "b": CHANNEL}),
    one_node("Conv", 7, {"w": small_integers(4, 3, 3, 2)}, auto_pad="SAME_UPPER", strides=[2, 1]),
    one_node("ConvTranspose", 9, {"w": small_integers(3, 2, 3, 2)}, strides=[2, 2], output_padding=[1, 0]),
]


@pytest.mark.parametrize("model", OPERATORS, ids=lambda model: f"{model.graph.node[0].op_type}-{lift.opset_of(model)}")
def test_every_operator_that_changes_until_then_gives_the_same_bits(model: ModelProto) -> None:
    lifted(model, drawn_run(model))


@pytest.mark.parametrize(
    "model",
    [
        one_node("BatchNormalization", 6, STATISTICS),
        one_node("BatchNormalization", 7, STATISTICS, spatial=0),
        one_node("Dropout", 6),
        one_node("LSTM", 6, {"w": CHANNEL, "r": CHANNEL}, hidden_size=1),
        one_node("Scan", 8, num_scan_inputs=1, body=helper.make_graph([], "body", [], [])),
    ],
    ids=lambda model: f"{model.graph.node[0].op_type}-{lift.opset_of(model)}",
)
def test_an_operator_without_a_counterpart_is_refused_by_its_name(model: ModelProto) -> None:
    with pytest.raises(CheckpointError, match=rf"{model.graph.node[0].op_type} \(own\): "):
        lift.lifted(model, Path("m.onnx"))


def old_network(path: Path) -> Path:
    """A convolution of opset 10, whose result is scaled up."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["a", "s"], ["y"], name="up", mode="linear"),
    ]
    tensors = [tensor("w", small_integers(4, 3, 3, 3)), tensor("s", np.array([1, 1, 2, 1.5], np.float32))]
    onnx.save(network(nodes, tensors, inputs=[port("x", ["n", 3, 6, 7])], outputs=[port("y", None)], opset=10), path)
    return path


@pytest.mark.fault
def test_a_file_that_becomes_another_network_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_network(tmp_path / "m.onnx")
    layers = dict(convert_model(open_network(path).cnn()).model.named_modules()).get
    write.attention_model(path, layers, form="separable").write(tmp_path / "out.onnx")
    (tmp_path / "out.onnx").unlink()

    right = lift.lifted

    def forgetful(model: ModelProto, path: Path) -> ModelProto:
        made = right(model, path)
        for attribute in made.graph.node[-1].attribute:
            attribute.s = attribute.s.replace(b"asymmetric", b"half_pixel")
        return made

    monkeypatch.setattr(lift, "lifted", forgetful)
    with pytest.raises(OtherNetworkError, match=r"Resize \(up\)"):
        write.attention_model(path, layers, form="separable")


@pytest.mark.fault
def test_a_layer_beyond_its_certificate_is_named_and_not_written(tmp_path: Path) -> None:
    path = old_network(tmp_path / "m.onnx")
    layers = dict(convert_model(open_network(path).cnn()).model.named_modules()).get
    whole = write.attention_model(path, layers, form="separable")
    weight = whole.model.graph.initializer[0]
    weight.CopyFrom(tensor("w", small_integers(4, 3, 3, 3) * np.float32(1.001)))
    with pytest.raises(OtherNetworkError, match="certificate"):
        whole.write(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
