"""Files that are no checkpoint, are damaged or mean harm are refused in one sentence, and nothing in them runs."""

from __future__ import annotations

import collections
import json
import os
import pickle
import warnings
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
from torch.package.package_exporter import PackageExporter

from conv2attn.convert import convert_model
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.files.weights import read_checkpoint
from tests.command import exit_code
from tests.small_models import Composite


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


# Files and folders that hold no network

Write = Callable[[Path], object]


def holding(content: bytes) -> Write:
    return lambda folder: (folder / "w").write_bytes(content)


def archive(entry: str, name: str = "w") -> Write:
    def write(folder: Path) -> None:
        with zipfile.ZipFile(folder / name, "w") as file:
            file.writestr(entry, b"0")

    return write


def package(pickled: str) -> Write:
    def write(folder: Path) -> None:
        with warnings.catch_warnings(action="ignore"), PackageExporter(folder / "w") as made:  # no longer worked on
            made.extern("**")
            made.save_pickle("", pickled, nn.Conv2d(2, 3, 3))

    return write


def saved(value: object) -> Write:
    return lambda folder: torch.save(value, folder / "w")


def files(*names: str, content: str = "") -> Write:
    """Files of weights or of this content, and folders, by their names."""

    def write(folder: Path) -> None:
        for path in map(folder.joinpath, names):
            (path if not path.suffix else path.parent).mkdir(parents=True, exist_ok=True)
            if path.suffix:
                save_file(state(), path) if path.suffix == ".safetensors" else path.write_text(content)

    return write


def index(key: str, place: object) -> Write:
    """An index, files of weights in its folder and beside the folder, and a link to that one."""

    def write(folder: Path) -> None:
        files("p.safetensors", "i/p.safetensors")(folder)
        (folder / "i/link").symlink_to(folder / "p.safetensors")
        (folder / "i/i.json").write_text(json.dumps({"weight_map": {key: place}}))

    return write


def shards_of_zero(folder: Path) -> None:
    files("zero_to_fp32.py", "step")(folder)
    for kind in ("model", "optim"):
        torch.save({}, folder / "step" / f"zero_pp_rank_0_mp_rank_00_{kind}_states.pt")


class Object:
    """A class of the user's own."""


DISTRIBUTED = r"torch\.distributed; python -m"
ZERO = r"DeepSpeed.*python zero_to_fp32\.py FOLDER OUT"

# what is opened, of what was written into a folder, and how it is refused
REFUSED: list[tuple[str, Write, str]] = [
    ("w", holding(b"\x89HDF\r\n\x1a\n" + bytes(60)), "HDF5 file, as Keras"),
    ("w", holding(bytes(4) + b"TFL3" + bytes(60)), "TensorFlow Lite"),
    ("w", holding(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "Git LFS pointer"),
    ("w", holding(b"<!DOCTYPE html><html></html>"), "HTML page"),
    ("w", holding(b"just text"), "a text file"),
    ("w", holding(b""), "is empty"),
    ("w", holding(bytes(range(256))), "unknown kind"),
    ("w", holding(b'{"a": 1}'), "JSON, but no index"),
    ("w", holding(pickle.dumps({"a": 1})), r"pickle\.dump wrote, not torch\.save"),
    ("w", archive("a.txt"), "PyTorch did not write"),
    ("w", archive("weight.npy"), "NumPy arrays"),
    ("w", archive("data/aotinductor/model/model.so"), "AOTInductor"),
    ("w", archive("model.weights.h5"), "Keras"),
    ("w", archive("MAR-INF/MANIFEST.json"), "TorchServe"),
    ("w", archive("run/last.ckpt"), r"holds run/last\.ckpt; unpack"),
    *(("w", package(pickled), r"a package of torch\.package") for pickled in ("model.pkl", "data.pkl")),
    (".", lambda folder: (folder / ".metadata").touch(), f"checkpoint of {DISTRIBUTED}"),
    ("0.distcp", archive("a/data.pkl", "0.distcp"), f"one shard .* {DISTRIBUTED}"),  # as its first record begins
    (".", shards_of_zero, ZERO),
    ("step", shards_of_zero, ZERO),
    ("step/zero_pp_rank_0_mp_rank_00_model_states.pt", shards_of_zero, ZERO),
    ("i/i.json", index("a", "../p.safetensors"), "no file in the folder"),
    ("i/i.json", index("a", "link"), "leaves its folder"),
    ("i/i.json", index("a", "gone"), "there is no file"),
    ("i/i.json", index("gone", "p.safetensors"), "holds 'gone', which it lacks"),
    ("i/i.json", index("a", 3), "JSON, but no index"),
    ("i/i.json", index("a", "i.json"), "listed in another"),
    (".", files("x.a.safetensors", "x.b.safetensors"), r"x\.a\.safetensors, x\.b\.safetensors; open one"),
    (".", files("vae/model.safetensors", "unet/model.safetensors", "rest"), "folders unet, vae; open .*unet$"),
    (".", files("vae/model.safetensors", "saved_model.pb"), "SavedModel of TensorFlow"),
    (".", files("rest"), "folder without weights"),
    (".", files("model.safetensors", "config.json", content='{"format": "conv2attn", '), r"config\.json is not JSON"),
    ("w", saved({"epoch": 3}), "no named tensors; it holds "),
    ("w", saved(Object()), "no named tensors; it holds "),
]


@pytest.mark.parametrize(("opened", "write", "words"), REFUSED)
def test_what_holds_no_network_is_refused_by_what_it_is_and_nothing_is_written(
    opened: str, write: Write, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match=words) as refused:
        read_checkpoint(tmp_path / opened) if "config" not in words else open_network(tmp_path)
    assert "\n" not in str(refused.value)
    assert exit_code("convert", tmp_path / opened, "--out", tmp_path / "out") == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(tmp_path.rglob("*")) == before


# Weights that are not those of a network


class Old(nn.Conv2d):
    """Reads no older file."""

    def _load_from_state_dict(self, *_: Any) -> None:
        raise ValueError("version 1 is too old\nreally")


PLAIN = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
PARTS = nn.ModuleDict({"backbone": nn.Conv2d(3, 6, 1), "head": nn.Conv2d(6, 5, 1)})
HEAD, COMPOSITE = PARTS["head"].state_dict(), Composite()
OWN, CONVERTED = COMPOSITE.state_dict(), dict(convert_model(COMPOSITE).model.state_dict())
SWAPPED = {"head.weight": torch.ones(3, 4, 1), "head.bias": torch.ones(3, dtype=torch.int64)}
UNFIT: list[tuple[nn.Module, object, str]] = [
    (PLAIN, {"state_dict": PLAIN.state_dict()}, "no moving average"),
    (PLAIN, {"model": state(), "ema": {"shadow_params": list(PLAIN.parameters())[::-1]}}, r"'ema\.shadow_params'"),
    (PARTS, {"head": HEAD, "loss": {"weight": torch.ones(3)}}, r"backbone\.weight"),
    (PARTS, {**{name: part.state_dict() for name, part in PARTS.items()}, "head_model": HEAD}, "does not fit"),
    (COMPOSITE, OWN | {"head.more": torch.ones(5)}, "'head.more', which the architecture lacks$"),
    (COMPOSITE, OWN | {"blocks.3.weight": torch.ones(5)}, r"'blocks\.3\.weight', which the architecture lacks$"),
    (COMPOSITE, OWN | {"stem._orig_mod.weight": OWN["stem.weight"] + 1}, "two keys are 'stem.weight'"),
    (COMPOSITE, OWN | SWAPPED, r"has shape \[3, 4, 1\], wanted \[3, 4\]; 'head.bias' is integer"),
    (COMPOSITE, {f"f.{n}": each for n, each in enumerate(OWN.values())}, r"'stem\.weight' is missing.*it holds 'f\.0'"),
    (COMPOSITE, {key: each for key, each in CONVERTED.items() if key != "stem.alpha"}, "does not fit"),
    (COMPOSITE, CONVERTED | {"head.alpha": torch.ones(4)}, "does not fit"),
    (Old(2, 3, 1), nn.Conv2d(2, 3, 1).state_dict(), "fit the architecture: ValueError: version 1 is too old$"),
]


@pytest.mark.parametrize(("architecture", "value", "words"), UNFIT)
def test_weights_that_are_not_those_of_a_network_are_refused_with_what_differs(
    architecture: nn.Module, value: object, words: str, tmp_path: Path
) -> None:
    torch.save(value, tmp_path / "w")
    with pytest.raises(CheckpointError, match=words):
        open_network(tmp_path / "w", Opening(architecture, ema=architecture is PLAIN)).cnn()


def test_the_weights_that_zero_writes_whole_are_read(tmp_path: Path) -> None:
    shards_of_zero(tmp_path)
    torch.save({"module": state()}, tmp_path / "step/mp_rank_00_model_states.pt")  # as ZeRO-2 writes it
    assert read_checkpoint(tmp_path / "step").state_dict.keys() == state().keys()


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
