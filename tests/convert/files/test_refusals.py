"""Files that are no checkpoint, are damaged or mean harm are refused in one sentence, and nothing in them runs."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, save_model
from safetensors.torch import save_file
from torch import nn

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.weights import Opening, read_checkpoint
from tests.command import exit_code


class Attack:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


def state() -> dict[str, torch.Tensor]:
    return dict(nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).state_dict())


def in_a_state_dict(attack: Attack) -> Any:
    return {**state(), "more": attack}


def in_a_module(attack: Attack) -> Any:
    net = nn.Sequential(nn.Conv2d(2, 3, 1))
    net.more = attack  # type: ignore[assignment]
    net._forward_hooks = collections.OrderedDict[int, Any]({0: attack})
    return net


@pytest.mark.parametrize("place", [in_a_state_dict, in_a_module])
@pytest.mark.parametrize("form", ["zip", "legacy", "plain", "shard", "folder"])
def test_a_pickle_runs_nothing(
    form: str, place: Callable[[Attack], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value, path = place(Attack(os.mkdir, "trace")), Path("w.bin")
    if form == "plain":
        path.write_bytes(pickle.dumps(value))
    else:
        torch.save(value, path, _use_new_zipfile_serialization=form != "legacy")
    if form == "shard":
        path = Path("pytorch_model.bin.index.json")
        path.write_text(json.dumps({"weight_map": {"0.weight": "w.bin"}}))
    if form == "folder":
        path.rename("pytorch_model.bin")
        path = Path()
    for architecture in (None, nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))):
        with suppress(Exception):  # refused, or read without what it asks for
            open_network(path, Opening(architecture)).cnn()(torch.zeros(1, 2, 4, 4))
    assert not Path("trace").exists()


# Kinds


def zipped() -> bytes:
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as file:
        file.writestr("a.txt", "text")
    return stream.getvalue()


KINDS: dict[str, tuple[bytes, str]] = {
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "is an HDF5 file, as Keras writes"),
    "TFLite": (bytes(4) + b"TFL3" + bytes(60), "is a TensorFlow Lite file"),
    "LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
    "HTML": (b"<!DOCTYPE html><html></html>", "is an HTML page"),
    "text": (b"just text", "is a text file"),
    "nothing": (b"", "is empty"),
    "zip": (zipped(), "is a zip archive that PyTorch did not write"),
    "noise": (bytes(range(256)), "is a file of an unknown kind"),
    "JSON": (b'{"a": 1}', "is JSON, but no index of a checkpoint in several files"),
    "pickle": (pickle.dumps({"a": 1}), "pickle.dump wrote, not torch.save"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_refused_by_what_it_is(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, told = KINDS[kind]
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(CheckpointError, match=told):
        read_checkpoint(tmp_path / "w")
    assert exit_code("convert", tmp_path / "w", "--out", tmp_path / "out") == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_part_of_a_distributed_checkpoint_is_refused_with_what_makes_one_file(tmp_path: Path) -> None:
    (tmp_path / ".metadata").touch()
    with pytest.raises(CheckpointError, match=r"is a checkpoint of torch\.distributed; python -m"):
        read_checkpoint(tmp_path)


def test_a_shard_of_a_distributed_checkpoint_is_refused_by_what_it_is(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "__0_0.distcp", "w") as shard:  # as its first record begins
        shard.writestr("archive/data.pkl", b"")
    with pytest.raises(CheckpointError, match=r"is one shard of a checkpoint of torch\.distributed"):
        read_checkpoint(tmp_path / "__0_0.distcp")


def test_shards_of_zero_name_the_program_that_joins_them(tmp_path: Path) -> None:
    inner = tmp_path / "global_step3"
    inner.mkdir()
    (tmp_path / "zero_to_fp32.py").touch()
    for kind in ("model", "optim"):
        torch.save({}, inner / f"zero_pp_rank_0_mp_rank_00_{kind}_states.pt")
    for path in (tmp_path, inner, inner / "zero_pp_rank_0_mp_rank_00_model_states.pt"):
        with pytest.raises(CheckpointError, match=r"DeepSpeed.*python zero_to_fp32\.py FOLDER OUT"):
            read_checkpoint(path)
    torch.save({"module": state()}, inner / "mp_rank_00_model_states.pt")  # as ZeRO-2 writes it
    assert read_checkpoint(inner).state_dict.keys() == state().keys()


def test_a_file_that_is_not_there_is_refused_with_names_like_it_or_with_what_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weights.pth").touch()
    Path("folder").mkdir()
    for path, told in (
        ("weigths.pth", "; close names: weights.pth"),
        ("hf:folder", "; a folder is named without hf:, folder"),
        ("microsoft/resnet-50", "; nothing is downloaded: hf download microsoft/resnet-50 gives a folder"),
    ):
        with pytest.raises(CheckpointError) as refused:
            read_checkpoint(path)
        assert str(refused.value) == f"there is no file {path}{told}"


# Damage


def as_onnx(path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "a")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    weight = numpy_helper.from_array(np.ones((3, 2, 1, 1), np.float32), "w")
    save_model(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], [weight])), path)


def as_index(path: Path) -> None:
    save_file(state(), path.with_name("part.safetensors"))
    path.write_text(json.dumps({"weight_map": dict.fromkeys(state(), "part.safetensors")}))


WRITERS: dict[str, Callable[[Path], None]] = {
    "torch": lambda path: torch.save(state(), path),
    "safetensors": lambda path: save_file(state(), path),
    "ONNX": as_onnx,
    "index": as_index,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_is_cut_is_refused(kind: str, tmp_path: Path) -> None:
    WRITERS[kind](tmp_path / "w")
    read_checkpoint(tmp_path / "w")
    content = (tmp_path / "w").read_bytes()
    for length in (len(content) // 7, len(content) // 2, len(content) - 1):
        (tmp_path / "w").write_bytes(content[:length])
        with pytest.raises(CheckpointError) as refused:
            read_checkpoint(tmp_path / "w")
        assert "\n" not in str(refused.value)


# Files beside a file


@pytest.mark.parametrize("name", ["../secret", "link", "gone"])
def test_an_index_does_not_lead_out_of_its_folder(name: str, tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "secret")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "link").symlink_to(tmp_path / "secret")
    (inner / "w.index.json").write_text(json.dumps({"weight_map": {"0.weight": name}}))
    with pytest.raises(CheckpointError, match=r"no file in the folder|leaves its folder|there is no file"):
        read_checkpoint(inner / "w.index.json")


# Texts


def test_names_with_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "a\x1b[2J\x07\u202eb\r"
    torch.save({evil: nn.Conv2d(2, 3, 1).weight, f"{evil}x": torch.ones(2)}, tmp_path / "w.pth")
    torch.save(nn.ModuleDict({evil: nn.Conv2d(2, 3, 1)}), tmp_path / "m.pth")
    for name in ("w.pth", "m.pth"):
        exit_code("plan", tmp_path / name)
        exit_code("convert", tmp_path / name, "--out", tmp_path / "out", "--no-page", "--force")
        for text in capsys.readouterr():
            assert all(letter.isprintable() or letter == "\n" for letter in text)
