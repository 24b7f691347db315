"""``conv2attn verify`` of ONNX files: both files are run, layers have certificates, and a fault in the file is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, version_converter

from conv2attn.commands.convert import convert_checkpoint
from conv2attn.commands.options import InputOptions
from conv2attn.commands.verify_onnx import OnnxCheck, verify_onnx_file
from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import CheckpointError, OptionError
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.onnx import forms, lift
from conv2attn.convert.onnx.run import random_feeds, session
from conv2attn.convert.onnx.write import FORMS
from conv2attn.show.text import Table
from tests.onnx_files import network, port, tensor


def save(path: Path) -> Path:
    """Two layers, one of them within an If."""
    numbers = np.random.default_rng(5)
    weights = [numbers.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 3, 3), (4, 2, 2, 2))]
    then = helper.make_graph(
        [helper.make_node("Conv", ["r", "w2"], ["inner"], group=2)], "then", [], [port("inner", None)]
    )
    other = helper.make_graph([helper.make_node("Identity", ["r"], ["same"])], "else", [], [port("same", None)])
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Constant", [], ["flag"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    tensors = [tensor("w1", weights[0]), tensor("w2", weights[1])]
    onnx.save(network(nodes, tensors, inputs=[port("x", ["n", 3, "h", "w"])], outputs=[port("y", None)]), path)
    return path


def verify(
    path: Path, *, original: Path | None = None, form: str | None = None, alpha: float | None = None
) -> OnnxCheck:
    inputs = InputOptions(count=2, size=Size(9, 11), seed=1)
    return verify_onnx_file(path, original=original, form=form, alpha=alpha, skip_unsupported=False, inputs=inputs)


def save_channels_last(path: Path) -> Path:
    """A layer between transpositions, as TensorFlow's exporter writes it; a kernel that no single row holds."""
    weight = np.random.default_rng(6).standard_normal((4, 3, 5, 5)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["first", "w"], ["c"]),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    inputs = [port("x", ["n", "h", "w", 3])]
    onnx.save(network(nodes, [tensor("w", weight)], inputs=inputs, outputs=[port("y", None)]), path)
    return path


def convert(path: Path, folder: Path) -> Path:
    convert_checkpoint(
        path, folder, opening=Opening(), device="cpu", dtype=None, include=(), exclude=(), alpha=None,
        skip_unsupported=False, input_range=(-1, 1), size=None, form=None, force=False,
    )  # fmt: skip
    return folder


@pytest.mark.parametrize(("form", "alpha"), [("literal", 3.0), ("separable", 3.0)])
def test_every_layer_has_its_certificate_and_outputs_are_run_beside_each_other(
    form: str, alpha: float | None, tmp_path: Path
) -> None:
    check = verify(save(tmp_path / "in.onnx"), form=form, alpha=alpha)
    assert check.exit_code == 0
    assert len(check.layers) == len(check.bounds) == 2
    assert all(0 < bound < float("inf") for bound in check.bounds.values())
    (apart, largest), *_ = check.outputs.values()
    assert 0 < apart < largest
    table, verdict = check.shown()
    assert str(verdict).startswith("Verified: ")
    assert isinstance(table, Table)
    assert len(replace(check, is_whole=True).shown()) == 4  # and the output and the seed


def test_a_folder_is_verified_beside_its_file(tmp_path: Path) -> None:
    path = save(tmp_path / "in.onnx")
    check = verify(convert(path, tmp_path / "out"), original=path)
    assert check.exit_code == 0
    assert check.form == "separable"


def test_a_folder_is_refused_beside_another_file(tmp_path: Path) -> None:
    folder = convert(save(tmp_path / "in.onnx"), tmp_path / "out")
    other = onnx.load(tmp_path / "in.onnx")
    other.doc_string = "another"
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(OptionError, match="was not converted from"):
        verify(folder, original=tmp_path / "other.onnx")


@pytest.mark.fault
def test_a_changed_weight_in_the_folders_file_is_told(tmp_path: Path) -> None:
    folder = convert(save(tmp_path / "in.onnx"), tmp_path / "out")
    model = onnx.load(folder / "model.onnx")
    changed = numpy_helper.to_array(model.graph.initializer[0]) * np.float32(1.5)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(changed, model.graph.initializer[0].name))
    onnx.save(model, folder / "model.onnx")
    assert verify(folder, original=tmp_path / "in.onnx").exit_code == 1


def test_a_network_whose_channels_come_last_is_run_on_images_of_the_size(tmp_path: Path) -> None:
    check = verify(save_channels_last(tmp_path / "in.onnx"))
    assert check.exit_code == 0
    feeds = random_feeds(session(tmp_path / "in.onnx"), size=Size(9, 11), count=2, seed=0)
    assert feeds["x"].shape == (2, 9, 11, 3)


def test_the_attention_of_a_folder_is_no_checkpoint_and_its_folder_is_named(tmp_path: Path) -> None:
    folder = convert(save(tmp_path / "in.onnx"), tmp_path / "out")
    told = f"model.onnx is attention already, of the conversion {folder}; .* conv2attn verify {folder} --original FILE"
    with pytest.raises(CheckpointError, match=told):
        verify(folder / "model.onnx")
    dense = network(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [tensor("w", np.ones((3, 2), dtype=np.float32))],
        inputs=[port("x", [1, 3])],
        outputs=[port("y", None)],
    )
    onnx.save(dense, tmp_path / "dense.onnx")
    with pytest.raises(CheckpointError, match=r"dense\.onnx is an ONNX file without convolutions, so there is nothing"):
        verify(tmp_path / "dense.onnx")


def save_old(path: Path) -> Path:
    """A convolution of opset 10, whose result is scaled up."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Resize", ["a", "s"], ["y"], name="up", mode="linear"),
    ]
    weight = np.random.default_rng(6).standard_normal((4, 3, 3, 3)).astype(np.float32)
    tensors = [tensor("w", weight), tensor("s", np.array([1, 1, 2, 2], np.float32))]
    inputs = [port("x", ["n", 3, "h", "w"])]
    onnx.save(network(nodes, tensors, inputs=inputs, outputs=[port("y", None)], opset=10), path)
    return path


@pytest.mark.fault
def test_a_file_that_becomes_another_network_in_a_later_version_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_old(tmp_path / "in.onnx")
    folder = convert(path, tmp_path / "out")
    assert verify(folder, original=path).exit_code == 0
    monkeypatch.setattr(lift, "lifted", lambda model, _: version_converter.convert_version(model, 11))
    for check in (verify(path), verify(folder, original=path)):
        assert check.exit_code == 1
        assert "Resize (up)" in str(check.difference)


@pytest.mark.fault
def test_a_layer_beyond_its_certificate_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*args: Any, **options: Any) -> Any:
        made = forms.separable(*args, **options)
        return args[0].add("Add", made, args[0].cast(args[0].constant([1e-3], "float32"), 1))

    monkeypatch.setitem(FORMS, "separable", FORMS["separable"]._replace(write=shifted))
    check = verify(save(tmp_path / "in.onnx"))
    assert check.exit_code == 1
    assert "certificate" in str(check.difference)
