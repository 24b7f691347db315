"""A file of any kind that is cut anywhere is refused, or still holds all it held."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import read_checkpoint
from tests.hostile.files import entry, onnx_listed, onnx_model, weight, write_exported, write_safetensors


def a_state() -> dict[str, Tensor]:
    return {"w": torch.arange(6.0).reshape(2, 3), "b": torch.arange(2)}


def write_legacy(path: Path) -> None:
    torch.save(a_state(), path, _use_new_zipfile_serialization=False)


def write_module(path: Path) -> None:
    torch.save(nn.Conv2d(1, 2, 1), path)


def write_script(path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated; its files are still around
        torch.jit.save(torch.jit.trace(nn.Conv2d(1, 2, 1), torch.ones(1, 1, 1, 1)), path)


def write_index(path: Path) -> None:
    write_safetensors(path.parent / "part", {"w": entry()})
    path.write_text('{"metadata": {}, "weight_map": {"w": "part"}}')


KINDS: dict[str, Callable[[Path], object]] = {
    "zip": lambda path: torch.save(a_state(), path),
    "legacy": write_legacy,
    "module": write_module,
    "script": write_script,
    "safetensors": lambda path: save_file(a_state(), path),
    "exported": lambda path: write_exported(path, {"config": {"c.weight": weight()}}),
    "index": write_index,
    "onnx": lambda path: path.write_bytes(onnx_model()),
    "onnx, listed": lambda path: path.write_bytes(onnx_listed()),
}


STEPS = {"module": 5, "script": 9}  # longer, of the same layout as "zip"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere_is_refused_or_holds_what_it_held(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "whole")
    whole, expected = (tmp_path / "whole").read_bytes(), read_checkpoint(tmp_path / "whole").state_dict
    cut, refused = tmp_path / "cut", 0
    lengths = range(0, len(whole), STEPS.get(kind, 1))
    for length in lengths:
        cut.write_bytes(whole[:length])
        try:
            found = read_checkpoint(cut).state_dict
        except CheckpointError:
            refused += 1
        else:
            assert all(torch.equal(found[key], expected[key]) for key in found)
            assert (
                kind.startswith("onnx") or found.keys() == expected.keys()
            )  # an ONNX graph may end after any of its tensors
    assert refused >= 0.9 * len(lengths)
