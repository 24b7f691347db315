"""Folders as transformers and diffusers write them, whole, in shards, or with several networks in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert.files.weights import read_checkpoint

State = dict[str, Tensor]


def state() -> State:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 4, (1, 2)))
    return {key: value.clone() for key, value in net.state_dict().items()}


def write(tensors: State, path: Path) -> None:
    """By the library that writes files of this suffix."""
    (save_file if path.suffix == ".safetensors" else torch.save)(tensors, path)


def as_shards(stem: str, suffix: str, index: str) -> Callable[[State, Path], None]:
    def write_shards(tensors: State, folder: Path) -> None:
        names = {key: f"{stem}-0000{1 + n % 2}-of-00002{suffix}" for n, key in enumerate(tensors)}
        for name in set(names.values()):
            write({key: value for key, value in tensors.items() if names[key] == name}, folder / name)
        (folder / index).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": names}))

    return write_shards


FOLDERS: dict[str, Callable[[State, Path], None]] = {
    **{
        name: lambda tensors, folder, name=name: write(tensors, folder / name)  # type: ignore[misc]
        for name in ("model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.fp16.safetensors")
    },
    "shards": as_shards("model", ".safetensors", "model.safetensors.index.json"),
    "shards of a variant": as_shards("m.fp16", ".safetensors", "m.safetensors.index.fp16.json"),
    "shards of .bin": as_shards("pytorch_model", ".bin", "pytorch_model.bin.index.json"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_is_read_as_the_weights_in_it(kind: str, tmp_path: Path) -> None:
    wanted = state()
    FOLDERS[kind](wanted, tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["Net"]}')
    torch.save({"state": {}}, tmp_path / "optimizer.bin")
    found = read_checkpoint(tmp_path)
    assert found.state_dict.keys() == wanted.keys()
    assert all(torch.equal(found.state_dict[key], value) for key, value in wanted.items())
    assert len(found.sha256) == 64
    assert len(found.files) == (3 if "shards" in kind else 1)


def test_a_name_whose_numbers_another_has_is_read_from_the_metadata(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, 3)}, tmp_path / "w.safetensors", {"format": "pt", "b": "a", "text": "of theirs"})
    found = read_checkpoint(tmp_path / "w.safetensors")
    assert found.state_dict["a"].data_ptr() == found.state_dict["b"].data_ptr()
