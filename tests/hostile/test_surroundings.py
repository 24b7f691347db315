"""What surrounds a run, its environment and the folder that it is in, changes no picture and is no bug."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.command import exit_code
from tests.processes import finished


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(nn.Sequential(nn.Conv2d(1, 2, 3)), "module.pt")


@pytest.mark.parametrize("date", ["abc", "9" * 30, "1e5"])
def test_a_date_that_is_none_is_told_in_one_sentence(
    date: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
    assert exit_code("show", "module.pt", "--out", "x.pdf", "--size", "8x8") == 3
    err = capsys.readouterr().err
    assert err.startswith("conv2attn: the picture cannot be drawn: ")
    assert err.count("\n") == 1
    assert not Path("x.pdf").exists()


def test_a_matplotlibrc_in_the_folder_changes_no_picture() -> None:
    """It made matplotlib run latex."""
    for name, text in (("a.svg", ""), ("b.svg", "text.usetex : True\nfont.size : 30\nlines.linewidth : 9\n")):
        Path("matplotlibrc").write_text(text)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "conv2attn.cli", "show", "module.pt", "--out", name, "--size", "8x8"]
        ended = finished(command, env=environment)
        assert ended.returncode == 0, ended.stderr
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


def test_a_backend_that_is_none_is_told_in_one_sentence() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "foo"}
    command = [sys.executable, "-m", "conv2attn.cli", "show", "module.pt", "--out", "x.svg", "--size", "8x8"]
    ended = finished(command, env=environment)
    assert ended.returncode == 3
    assert ended.stderr.startswith("conv2attn: pictures are drawn with matplotlib, which cannot be used here: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("length", ["0", "\u00b2", "-1", "9" * 5000])
def test_a_terminal_of_no_size_gets_the_whole_table(name: str, length: str) -> None:
    """With 0 columns nothing was printed, without a word."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TTY_COMPATIBLE": "1", name: length}
    command = [sys.executable, "-m", "conv2attn.cli", "plan", "module.pt"]
    ended = finished(command, env=environment | {"NO_COLOR": "1", "PYTHONUTF8": "1"})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "3x3, 1->2" in ended.stdout


def _in_shell(before: str, *arguments: str) -> tuple[int, str]:
    """The exit code and the standard error of a command that a shell starts where it is."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))}
    command = [sys.executable, "-P", "-m", "conv2attn.cli", *arguments]  # -P: Python does not look where it is
    ended = finished(["sh", "-c", f'{before} && exec "$@"', "sh", *command], env=environment)
    return ended.returncode, ended.stderr


def test_a_command_in_a_folder_that_was_deleted_says_so(tmp_path: Path) -> None:
    """PyTorch's library for matrices ended the process there, with the exit code of wrong use."""
    deleted, out = "mkdir gone && cd gone && rmdir ../gone", tmp_path / "out"
    told = _in_shell(deleted, "convert", str(tmp_path / "module.pt"), "--out", str(out))
    assert told == (3, "conv2attn: the current folder cannot be read or written: No such file or directory\n")
    assert not out.exists()


def test_twelve_open_files_are_enough_or_said_to_be_too_few() -> None:
    code, err = _in_shell("ulimit -n 12", "convert", "module.pt", "--out", "out")
    assert code == 0 or (code == 3 and err.startswith("conv2attn: ") and err.count("\n") == 1)


def test_a_pytorch_that_cannot_be_loaded_is_told_in_one_sentence(tmp_path: Path) -> None:
    """So it is where a limit on memory leaves no room for its libraries."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no room for its libraries')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    ended = finished([sys.executable, "-m", "conv2attn.cli", "plan", "module.pt"], env=environment)
    assert ended.returncode == 3
    assert ended.stderr == "conv2attn: PyTorch cannot be loaded: no room for its libraries\n"
