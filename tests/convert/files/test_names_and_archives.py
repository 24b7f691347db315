"""Files and folders with names of any bytes, or that are not there, and zip archives that are no checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn

from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.weights import Opening


@pytest.mark.parametrize("name", [b"plain.pth", b"k\xe9rn\xff.pth"])
@pytest.mark.parametrize("kind", ["torch", "legacy", "safetensors"])
def test_a_file_is_read_whatever_the_bytes_of_its_name(kind: str, name: bytes, tmp_path: Path) -> None:
    conv = nn.Conv2d(2, 3, 3)
    path = tmp_path / os.fsdecode(name)
    with path.open("wb") as file:
        if kind == "safetensors":
            file.write(save(conv.state_dict()))
        else:
            torch.save(conv.state_dict(), file, _use_new_zipfile_serialization=kind == "torch")
    found = open_network(path, Opening(nn.Conv2d(2, 3, 3))).cnn().state_dict()
    assert all(torch.equal(found[key], value) for key, value in conv.state_dict().items())


def test_a_folder_is_read_whatever_the_bytes_of_its_name(tmp_path: Path) -> None:
    model = convert_model(nn.Conv2d(2, 3, 3)).model
    save_converted(model, tmp_path / "out")
    (tmp_path / "out").rename(other := tmp_path / os.fsdecode(b"k\xe9rn\xff"))
    loaded = load_converted(other, architecture=nn.Conv2d(2, 3, 3)).state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())


def test_a_folder_or_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    save_converted(convert_model(nn.Conv2d(2, 3, 3)).model, tmp_path / "network")
    with pytest.raises(CheckpointError, match=r"there is no folder .*network2; close names: network"):
        load_converted(tmp_path / "network2")
    with pytest.raises(CheckpointError, match="is a file"):
        load_converted(tmp_path / "network" / "config.json")
    with pytest.raises(CheckpointError, match="there is no file"):
        open_network(tmp_path / "network2.pth")
