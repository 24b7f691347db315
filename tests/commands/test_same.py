"""``conv2attn same`` says whether two files hold the same network."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from tests.command import Run
from tests.onnx_files import network as onnx_network
from tests.onnx_files import port, tensor


@pytest.fixture
def pair(tmp_path: Path) -> tuple[nn.Module, Path]:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    torch.save(network, tmp_path / "a.pt")
    return network, tmp_path


def faulty(network: nn.Module, path: Path) -> Path:
    other = copy.deepcopy(network)
    other[1].eps = 1e-3  # type: ignore[index]
    torch.save(other, path)
    return path


def test_the_same_file_has_the_same_bits(pair: tuple[nn.Module, Path], run: Run) -> None:
    _, folder = pair
    ran = run("same", folder / "a.pt", folder / "a.pt", "--random", 2, "--size", "8x9")
    assert ran.code == 0
    assert "Same bits: all 336 numbers of the outputs are equal." in ran.out


def test_a_fault_is_named_with_exit_code_1(pair: tuple[nn.Module, Path], run: Run) -> None:
    network, folder = pair
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal((2, 3, 7, 8), dtype=np.float32))
    other = faulty(network, folder / "b.pt")
    ran = run("same", folder / "a.pt", other, "--input", folder / "x.npy")
    assert ran.code == 1
    assert "It begins at `1` (batch norm): eps 1e-05 and 0.001." in ran.out
    found = json.loads(run("same", folder / "a.pt", other, "--input", folder / "x.npy", "--json").out)
    assert (found["verdict"], found["exit_code"]) == ("not rounding", 1)
    assert found["where"][0]["name"] == "1"


def test_images_of_a_folder_are_taken(pair: tuple[nn.Module, Path], run: Run) -> None:
    network, folder = pair
    (folder / "images").mkdir()
    torch.save(torch.randn(3, 8, 8), folder / "images" / "x.pt")
    ran = run("same", folder / "a.pt", faulty(network, folder / "b.pt"), "--data", folder / "images")
    assert ran.code == 1
    assert "1x4x6x6" in ran.out


def test_two_onnx_files_cannot_be_judged_with_exit_code_5(run: Run, tmp_path: Path) -> None:
    for name, factor in (("a.onnx", 1.0), ("b.onnx", 1.5)):
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
        weights = [tensor("w", torch.full((2, 3, 1, 1), factor))]
        ports = [port("x", [1, 3, 4, 4])], [port("y", [1, 2, 4, 4])]
        onnx.save(onnx_network(nodes, weights, inputs=ports[0], outputs=ports[1]), tmp_path / name)
    ran = run("same", "a.onnx", "b.onnx")
    assert ran.code == 5
    assert "Cannot say: neither side has a graph" in ran.out


def test_inputs_are_chosen_in_one_way(pair: tuple[nn.Module, Path], run: Run) -> None:
    _, folder = pair
    ran = run("same", folder / "a.pt", folder / "a.pt", "--random", 2, "--data", folder)
    assert ran.code == 2
    assert "exclude each other" in ran.err
    (folder / "x.npy").write_bytes(b"no array")
    ran = run("same", folder / "a.pt", folder / "a.pt", "--input", folder / "x.npy")
    assert ran.code == 3
    assert "holds no arrays of numbers" in ran.err
