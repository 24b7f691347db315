"""Converted folders, and architectures' names, take no more memory and time than a file does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import charge_modules, fit_keys, load_into, read_checkpoint
from conv2attn.convert.files.config import read_config
from conv2attn.convert.files.folder import read_folder
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.tensors import write_safetensors as write
from tests.hostile.files import FLOATS, entry, write_safetensors
from tests.hostile.folders import FOLDERS, described, many, one_name, several
from tests.hostile.measuring import ALLOWED, OPEN, SECONDS, measuring


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_takes_at_most_twice_its_size_and_256_megabytes_and_a_second_a_megabyte(
    name: str, tmp_path: Path
) -> None:
    FOLDERS[name](tmp_path / "out")
    size = sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    with measuring(OPEN) as measure:
        for way in ("open", "load", "restore"):
            memory, seconds, outcome = measure(Path(f"{tmp_path / 'out'}:{way}"))
            assert outcome.startswith("read" if name == "several" else ("read", "refused: ")), outcome
            assert memory <= 2 * size + ALLOWED
            assert seconds < SECONDS + size / 2**20


def test_a_description_and_a_header_that_are_read_alone_are_refused_together(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    described(folder)
    read_config(folder)
    read_checkpoint(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="it takes more memory to read"):
        read_folder(folder)


def test_more_layers_than_any_network_has_are_refused_before_they_are_built(tmp_path: Path) -> None:
    several(tmp_path / "several")
    assert len(read_config(tmp_path / "several")[1].layers) == 1_500
    many(tmp_path / "many")
    with pytest.raises(CheckpointError, match="it takes more memory to read"):
        read_config(tmp_path / "many")


@pytest.mark.parametrize(("spent", "endless"), [("memory", "steps"), ("steps", "memory")])
def test_entries_and_modules_are_each_charged_for_the_memory_and_for_the_steps_they_take(
    spent: str, endless: str, tmp_path: Path
) -> None:
    one_name(tmp_path / "out")
    for read in (partial(read_config, tmp_path / "out"), partial(charge_modules, map(str, range(200_000)))):
        budget = Budget()
        setattr(budget, endless, 10**12)
        with pytest.raises(CheckpointError, match=f"it takes more {spent} to read"):
            read(budget)


def test_names_with_many_prefixes_take_linear_time() -> None:
    names = ["module." * 500 + "x", *map(str, range(100_000))]
    before = time.process_time()
    fit_keys(dict.fromkeys(names, torch.zeros(0)), ["x"])
    assert time.process_time() - before < SECONDS


def test_loading_layers_takes_a_time_that_is_linear_in_their_number() -> None:
    tree = Layers()
    for number in range(10_000):
        tree.add_module(str(number), nn.Linear(1, 1))
    state = tree.state_dict()
    before = time.process_time()
    tree.load_state_dict(state)
    assert time.process_time() - before < SECONDS


def test_layers_load_as_any_modules_do() -> None:
    """With inner trees, a shared module, and keys that are missing or unexpected."""

    def filled(tree: nn.Module) -> nn.Module:
        inner, shared = type(tree)(), nn.BatchNorm2d(2)
        inner.add_module("norm", shared)
        inner.add_module("pair", nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
        tree.add_module("inner", inner)
        tree.add_module("again", shared)
        return tree

    mine, plain = filled(Layers()), filled(nn.Module())
    state = {key: torch.randn_like(value.float()) for key, value in plain.state_dict().items()}
    state |= {f"again.{key}": state[f"inner.norm.{key}"] for key in plain.get_submodule("again").state_dict()}
    for change in ({}, {"other": torch.zeros(1)}, {"inner.other": torch.zeros(1)}, {"again.other": torch.zeros(1)}):
        given = {key: value for key, value in state.items() if key != "inner.pair.0.bias"} | change
        found, expected = (tree.load_state_dict(given, strict=False) for tree in (mine, plain))
        assert [set(keys) for keys in found] == [set(keys) for keys in expected]
        with pytest.raises(RuntimeError, match=r"pair\.0\.bias"):
            mine.load_state_dict(given)
    assert str(mine.load_state_dict(state)) == str(plain.load_state_dict(state))
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in mine.state_dict().items())


def test_one_tensor_of_a_network_with_two_values_in_a_file_is_refused(tmp_path: Path) -> None:
    conv = nn.Conv2d(1, 1, 1)
    model = nn.ModuleDict({"a": conv, "b": conv})
    state = {key: torch.full_like(value, torch.nan) for key, value in model.state_dict().items()}
    write({key: value.clone() for key, value in state.items()}, tmp_path / "same", {})
    load_into(model, read_checkpoint(tmp_path / "same"))
    assert bool(conv.weight.isnan().all())
    write(state | {"b.weight": torch.full((1, 1, 1, 1), 7.0)}, tmp_path / "torn", {})
    for assign in (False, True):
        with pytest.raises(CheckpointError, match=r"'a\.weight' and 'b\.weight' are one tensor, with two values"):
            load_into(model, read_checkpoint(tmp_path / "torn"), assign=assign)
    assert bool(conv.weight.isnan().all())


OPENED = """
import os, sys
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.files.open import open_network

def tell(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and os.path.realpath(arguments[0]).endswith("/outside"):
        print("opened", arguments[0])

sys.addaudithook(tell)
try:
    open_network(sys.argv[1])
except ConversionError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json", "part"])
def test_a_link_out_of_a_folder_is_not_even_opened(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"w": entry()}, data=FLOATS)
    if name == "part":
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "part"}}))
    if name.endswith("index.json"):
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    (tmp_path / "outside").write_text('{"format": "conv2attn"}')  # what would make the folder a converted one
    (folder / name).symlink_to(tmp_path / "outside")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OPENED, str(folder)]
    told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert told.count("\n") == 1
    assert told.endswith(f"{folder / name} is a link that leaves its folder\n")


def test_the_description_of_a_converted_folder_is_not_read_through_a_link_out_of_it(tmp_path: Path) -> None:
    save_converted(convert_model(nn.Conv2d(2, 3, 3)).model, tmp_path / "out")
    (tmp_path / "out" / "config.json").rename(tmp_path / "outside")
    (tmp_path / "out" / "config.json").symlink_to(tmp_path / "outside")
    with pytest.raises(CheckpointError, match="is a link that leaves its folder"):
        load_converted(tmp_path / "out")


def test_a_link_within_a_folder_is_read(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "weights", {"w": entry()}, data=FLOATS)
    (tmp_path / "model.safetensors").symlink_to("weights")
    assert read_checkpoint(tmp_path).state_dict.keys() == {"w"}
