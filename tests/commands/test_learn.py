"""The command that learns: killed and resumed, several processes, data that cannot be read, the paper's recipe."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
import torch

from conv2attn.learn.data import datasets as kinds
from conv2attn.learn.experiment.recipes import PAPERS
from conv2attn.learn.training.folders import read_records
from tests.command import exit_code, result_of
from tests.learn.cifar10 import batches, write_archive
from tests.learn.experiments import stripes
from tests.processes import finished

ENCODINGS = "quadratic,resnet10"
_KILLED = """
import os, signal, sys

import torch

from conv2attn.cli import main
from conv2attn.learn.data import datasets as kinds
from conv2attn.learn.experiment.folder import HeadRecorder
from tests.learn.experiments import stripes

record, calls = HeadRecorder.__call__, -2  # both networks are looked at before the first is trained
def counted(self, network):
    global calls
    calls += 1
    if calls == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return record(self, network)

if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv.pop(1)))  # sums are in the order of the run it is compared with
    kinds.digits = lambda side: stripes()
    HeadRecorder.__call__ = counted
    main()
"""


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images in the place of the digits."""
    monkeypatch.setattr(kinds, "digits", lambda side: stripes())


def arguments(out: Path, *more: object) -> tuple[object, ...]:
    return "learn", "--encoding", ENCODINGS, "--depth", 2, "--heads", 3, "--epochs", 4, "--out", out, *more


def kept(folder: Path) -> dict[str, bytes]:
    """Every file of an experiment that says what came of it."""
    names = ("results.json", "*/seed-*/records.json", "*/training.html")
    return {str(file.relative_to(folder)): file.read_bytes() for name in names for file in folder.glob(name)}


@pytest.mark.slow
def test_a_killed_command_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """It is killed in the second network's third record."""
    assert exit_code(*arguments(tmp_path / "whole")) == 0
    command = [sys.executable, "-c", _KILLED, torch.get_num_threads(), *arguments(tmp_path / "killed")]
    assert finished(command, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL
    assert len(list((tmp_path / "killed").glob("*/seed-0/last.ckpt"))) == 2
    assert exit_code(*arguments(tmp_path / "killed")) == 3
    assert exit_code(*arguments(tmp_path / "killed", "--resume")) == 0
    assert len(kept(tmp_path / "whole")) == 4
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")


@pytest.mark.slow
def test_the_paper_s_recipe_runs_on_an_archive_of_cifar_10_s_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = write_archive(tmp_path / "cifar-10-binary.tar.gz", batches(2))
    command = ("learn", "--recipe", "paper", "--data", f"cifar10:{archive}", "--epochs", 1, "--json")
    assert exit_code(*command, "--encoding", "quadratic,resnet18", "--out", tmp_path / "paper") == 0
    found = result_of("learn", capsys.readouterr().out)
    assert [row["parameters"] for row in found["results"]] == [11_124_444, 11_173_962]
    assert json.loads((tmp_path / "paper" / "experiment.json").read_text())["setting"]["sizes"] == {
        **vars(PAPERS.sizes)
    }
    (_, layers) = (record["layers"] for record in read_records(tmp_path / "paper" / "quadratic" / "seed-0"))
    assert [len(layer["taps"]) for layer in layers] == [9] * 6
