"""What a second attack tried and did not break: odd sizes, geometries and options, and layers that are too large."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.open import open_network
from tests.command import exit_code
from tests.hostile.measuring import ALLOWED, READ, SECONDS, Measure, measuring

BUG = 70


@pytest.fixture(scope="module")
def measure() -> Iterator[Measure]:
    with measuring(READ) as found:
        yield found


def write_conv(path: Path, shape: tuple[int, ...] = (1, 1, 1, 1), **attributes: Any) -> None:
    """An ONNX file with one convolution, of zeros."""
    numbers = np.zeros(shape, np.float32).tobytes() if 0 not in shape else b""
    weight = helper.make_tensor("w", TensorProto.FLOAT, shape, numbers, raw=True)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "layer", **attributes)
    onnx.save(helper.make_model(helper.make_graph([node], "graph", [], [], [weight])), str(path))


@pytest.mark.parametrize("shape", [(10**9, 0, 1, 1), (0, 10**9, 1, 1), (1, 1, 0, 10**9), (2**30, 0, 2**15, 2**15)])
def test_weights_of_no_numbers_take_little_memory(shape: tuple[int, ...], tmp_path: Path, measure: Measure) -> None:
    write_conv(tmp_path / "w", shape)
    memory, seconds, outcome = measure(tmp_path / "w")
    assert outcome == "read 1"
    assert memory < ALLOWED
    assert seconds < SECONDS
    assert read_checkpoint(tmp_path / "w").convolutions["layer"].spec is None


@pytest.mark.parametrize("value", [0, -1, 2**31 - 1, 2**31, 2**62])
@pytest.mark.parametrize("name", ["strides", "pads", "dilations", "group"])
def test_odd_geometries_are_read_or_refused_by_name(name: str, value: int, tmp_path: Path) -> None:
    numbers: Any = {"group": value, "pads": [value] * 4}.get(name, [value] * 2)
    write_conv(tmp_path / "w.onnx", (1, 1, 1, 1), **{name: numbers})
    found = read_checkpoint(tmp_path / "w.onnx").convolutions["layer"]
    open_network(tmp_path / "w.onnx")
    fits = name != "group" and (value == 2**31 - 1 or (name == "pads" and value == 0))
    assert (found.spec is not None) == fits
    assert (found.problem is None) == fits


def test_large_transposed_tensors_and_views_take_no_more_than_is_allowed(tmp_path: Path, measure: Measure) -> None:
    whole = torch.randn(2000, 20_000)
    views = {"a": whole[:, ::2].T, "b": whole[::3].T, "c": whole.T, "d": whole[1:, 1:].T}
    torch.save(views, tmp_path / "w")
    size = (tmp_path / "w").stat().st_size
    memory, seconds, outcome = measure(tmp_path / "w")
    assert outcome == "read 4"
    assert memory <= 2 * size + ALLOWED
    assert seconds < SECONDS + size / 2**20
    found = read_checkpoint(tmp_path / "w").state_dict
    assert all(torch.equal(found[name], views[name]) for name in views)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """Runs the command line in a folder with a network; gives the exit code, which is never that of a bug."""
    monkeypatch.chdir(tmp_path)
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)), "module.pt")

    def run(*arguments: str) -> int:
        capsys.readouterr()
        code, told = exit_code(*arguments), capsys.readouterr().err
        assert code != BUG, told
        assert code != 3 or told.count("\n") == 1
        return code

    return run


LARGE: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "pads": ((1, 1, 1, 1), {"pads": [8192] * 4}),
    "dilation": ((1, 1, 2, 2), {"dilations": [16384, 16384]}),
    "outputs": ((10**5, 1, 1, 1), {}),
    "inputs": ((1, 10**6, 1, 1), {}),
    "heads": ((1, 1, 128, 128), {}),
}


@pytest.mark.parametrize("name", LARGE)
def test_layers_that_are_too_large_are_planned_and_restored_and_not_drawn(name: str, run: object) -> None:
    shape, attributes = LARGE[name]
    write_conv(Path("model.onnx"), shape, **attributes)
    assert callable(run)
    assert run("plan", "model.onnx") == 0
    assert run("convert", "model.onnx", "--out", "out") == 0
    assert run("plan", "out") == 0
    assert run("restore", "out", "--out", "cnn.pt") == 0
    for source in ("model.onnx", "out"):
        for target in ("x.html", "x.svg"):
            assert run("show", source, "--out", target) == 3


DIGITS = "9" * 5000
OPTIONS: list[tuple[str, ...]] = [
    *(("--alpha", value) for value in ("1e400", "nan", "1e-400", "5e-324", "1e308", "-1", "0x10", DIGITS)),
    *(("--input-range", value) for value in ("1,0", "-1e308,1e308", "1e400,1", "nan,1", "5e-324,5e-324", ",", DIGITS)),
    *(("--device", value) for value in ("meta", "cuda:99999999999999999999", "xla", "cpu:-1", "", "cpu;", "\x1b[31m")),
    *(("--size", value) for value in ("99999999999999999999x1", "4294967296x4294967296", "1x1", "0x0", "x", "1e3x1")),
    *(("--include", value) for value in ("re:(", "re:(?P<a>x)(?P<a>y)", "[", "*" * 3000, "re:\x00")),
    *(
        ("--arch", value)
        for value in ("", "::", ":", "a:", "torch.nn:", "/dev/null:x", "x" * 5000 + ".py:y", "sys:exit")
    ),
    *(
        ("--arch", "torch.nn:Conv2d", "--arch-arg", value)
        for value in ("x=" + "[" * 10**5, "=", "x=NaN", "x=" + DIGITS)
    ),
]


@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: " ".join(options)[:40].encode("unicode_escape").decode()
)
def test_options_in_every_odd_spelling_are_no_bug(options: tuple[str, ...], run: object) -> None:
    assert callable(run)
    assert run("convert", "module.pt", "--out", "out", *options) in (0, 2, 3, 4)


@pytest.mark.parametrize(
    "options",
    [
        *(("--shard", value) for value in ("0/0", "1/1", "-1/2", f"{DIGITS}/2", "0/9999999999", "a/b", "0/1e3", "")),
        *(("--seed", value) for value in ("-1", str(2**63), str(2**64), "9" * 30, DIGITS)),
        *(("--max-size", value) for value in ("0", "-5", "9" * 30)),
        *(("--minutes", value) for value in ("0", "nan", "-1", "1e400")),
    ],
    ids=lambda options: " ".join(options)[:40],
)
def test_numbers_that_are_none_are_no_bug_of_a_campaign(options: tuple[str, ...], run: object) -> None:
    assert callable(run)
    assert run("soak", "--layers", "1", *options) in (0, 2, 3)


def test_the_file_of_a_result_is_whole_json_whatever_the_seed(run: object) -> None:
    assert callable(run)
    assert run("soak", "--layers", "1", "--seed", str(2**64), "--out", "x.json") in (0, 2)
    assert not Path("x.json").exists() or isinstance(json.loads(Path("x.json").read_text()), dict)


def odd_places(folder: Path) -> dict[str, Path]:
    """What is no plain file, by what it is."""
    os.mkfifo(folder / "pipe")
    for name in ("weights", "description"):
        (folder / name).mkdir()
    os.mkfifo(folder / "weights" / "model.safetensors")
    os.mkfifo(folder / "description" / "config.json")
    (folder / "circle").symlink_to("circle")
    (folder / "to nothing").symlink_to("nothing")
    with socket.socket(socket.AF_UNIX) as held:
        held.bind("socket")
    names = ("pipe", "weights", "description", "circle", "to nothing", "socket")
    return {name: folder / name for name in names} | {"zeros": Path("/dev/zero"), "nothing": Path("/dev/null")}


def test_what_is_no_file_is_refused_as_a_checkpoint_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, path in odd_places(tmp_path).items():
        assert exit_code("plan", str(path)) == 3, name
        assert capsys.readouterr().err.count("\n") == 1, name


def test_what_is_no_folder_is_refused_as_an_output_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_conv(tmp_path / "w.onnx")
    places = odd_places(tmp_path) | {"root": Path("/"), "here": Path(), "long": tmp_path / ("a" * 300)}
    del places["to nothing"], places["circle"]  # links are followed
    for name, path in places.items():
        assert exit_code("convert", "w.onnx", "--out", str(path), "--force") == 3, name
        assert capsys.readouterr().err.count("\n") == 1, name
    assert not (tmp_path / "nothing").exists()
    assert exit_code("convert", "w.onnx", "--out", "a\nb") == 0
    assert exit_code("convert", "w.onnx", "--out", "to nothing") == 0
    assert (tmp_path / "nothing" / "config.json").is_file()
