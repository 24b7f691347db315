"""ONNX files are read with their external data, and refused in one sentence where they cannot be."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from conv2attn.convert.errors import CheckpointError, ToolError
from conv2attn.convert.onnx import read_onnx
from conv2attn.convert.sameness.same import same
from tests.onnx_files import network, port, read, small_integers, tensor

DTYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.INT4: torch.int8,
    TensorProto.UINT4: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.BOOL: torch.bool,
    TensorProto.COMPLEX64: torch.complex64,
}


def of(*tensors: TensorProto) -> ModelProto:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    weight = tensor("w", small_integers(2, 3, 2, 2))
    return network([node], [weight, *tensors], inputs=[port("x", None)], outputs=[port("y", None)])


@pytest.mark.parametrize("kind", DTYPES)
def test_a_tensor_of_every_type_that_torch_has_is_read(kind: int, tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {"scalar": (), "matrix": (1, 3), "empty": (0, 2)}
    protos = [helper.make_tensor(name, kind, shape, [1.0] * math.prod(shape)) for name, shape in shapes.items()]
    tensors = read(of(*protos), tmp_path / "m.onnx")[0]
    for name, shape in shapes.items():
        assert tensors[name].dtype == DTYPES[kind]
        assert torch.equal(tensors[name].to(torch.complex64), torch.ones(shape, dtype=torch.complex64))


def test_text_and_types_that_torch_lacks_are_not_among_the_tensors(tmp_path: Path) -> None:
    texts = TensorProto(name="text", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    tiny = helper.make_tensor("tiny", TensorProto.FLOAT4E2M1, [2], [1.0, 2.0])
    assert read(of(texts, tiny), tmp_path / "m.onnx")[0].keys() == {"w"}


def save_external(path: Path, location: str = "numbers.bin") -> ModelProto:
    model = of()
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=0)
    return model


def test_external_data_are_read_from_the_model_s_folder(tmp_path: Path) -> None:
    save_external(tmp_path / "m.onnx")
    tensors, files, _ = read_onnx(tmp_path / "m.onnx")
    assert np.array_equal(tensors["w"].numpy(), small_integers(2, 3, 2, 2))
    assert files == (tmp_path / "m.onnx", tmp_path / "numbers.bin")


def test_a_hugging_face_cache_keeps_its_files_as_links(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "revision"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_external(blobs / "m.onnx")
    for name in ("m.onnx", "numbers.bin"):
        (blobs / name).rename(blobs / f"hash of {name}")
        (snapshot / name).symlink_to(blobs / f"hash of {name}")
    assert read_onnx(snapshot / "m.onnx")[0].keys() == {"w"}


@pytest.mark.parametrize("location", ["../outside.bin", "link.bin", "missing.bin"])
def test_external_data_outside_the_folder_or_missing_are_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(200))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    save_external(folder / "m.onnx")
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    onnx.save(model, folder / "m.onnx")
    with pytest.raises(CheckpointError, match=r"m.onnx cannot be read: .*(names|leaves its folder|there is no file)"):
        read_onnx(folder / "m.onnx")


def test_a_damaged_or_missing_file_is_refused_and_one_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = of(TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[3], raw_data=bytes(8)))
    with pytest.raises(CheckpointError, match=r"m\.onnx cannot be read: the tensor 't' is damaged"):
        read(damaged, tmp_path / "m.onnx")
    with pytest.raises(CheckpointError, match=r"there is no file .*close names: m\.onnx"):
        same(torch.nn.Identity(), tmp_path / "mm.onnx", torch.zeros(1))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ToolError, match=r'needs the package onnx: pip install "conv2attn\[onnx\]"'):
        read_onnx(tmp_path / "m.onnx")
