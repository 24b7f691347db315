"""Whatever the terminal, the locale and the disk are like, a run ends with what it says, in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.main import get_command

from conv2attn.cli import app, main
from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.examples.networks import plain_cnn
from conv2attn.convert.files.architecture import Architecture, build_architecture
from conv2attn.proofs.benchmark.outputs import check_outputs
from conv2attn.proofs.terminal.command import Command
from tests.command import exit_code

COMMAND = [sys.executable, "-m", "conv2attn.cli"]
NAME = "\u03b1\u202e\u5b57"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(nn.ModuleDict({NAME: nn.Conv2d(2, 3, 3), "ü": nn.Conv1d(1, 1, 1)}), "module.pt")


def started(arguments: Sequence[str], environment: Mapping[str, str], **streams: object) -> tuple[int, str, str]:
    """Runs the command line as a program."""
    changed = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    ended = subprocess.run([*COMMAND, *arguments], env=changed, check=False, **pipes)  # type: ignore[call-overload]
    out, err = ((stream or b"").decode("ascii" if environment else "utf-8") for stream in (ended.stdout, ended.stderr))
    return ended.returncode, out, err


LOCALES = [
    {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]


@pytest.mark.parametrize("environment", LOCALES)
@pytest.mark.parametrize("arguments", [("plan", "module.pt"), ("plan", "module.pt", "--json"), ("claims",)])
def test_a_terminal_without_unicode_gets_escapes(arguments: Sequence[str], environment: dict[str, str]) -> None:
    code, out, err = started(arguments, environment)
    assert (code, err) == (0, "")
    if arguments == ("plan", "module.pt"):
        assert "\\u03b1\\u202e\\u5b57" in out


@pytest.mark.parametrize("environment", LOCALES)
def test_a_terminal_without_unicode_gets_the_reason(environment: dict[str, str]) -> None:
    code, out, err = started(("plan", "字.pt"), environment)
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert err.startswith("conv2attn: ")


@pytest.mark.parametrize(
    "arguments", [("plan", "module.pt"), ("plan", "module.pt", "--json"), ("claims",), ("--help",)]
)
def test_a_full_standard_output_is_told_in_one_sentence(arguments: Sequence[str]) -> None:
    with open("/dev/full", "wb") as full:
        code, _, err = started(arguments, {}, stdout=full)
    assert err == "conv2attn: the output cannot be read or written: No space left on device\n"
    assert code == 3


LEAKING = """
import os
from torch import nn

os.system("echo LEAK; echo LEAK >&2")
os.system("true <&0 && true >&1 && true >&2 && echo open >> STREAMS")

def net():
    return nn.Sequential(nn.Conv2d(1, 1, 1))
"""


@pytest.mark.parametrize(
    "arguments",
    [("plan", "module.pt"), ("plan", "module.pt", "--json"), ("soak", "--layers", "2", "--out", "x.json"), ("--help",)],
)
def test_a_closed_standard_output_is_told_in_one_sentence(arguments: Sequence[str]) -> None:
    code, err = closed(1, arguments)
    assert err == "conv2attn: the output cannot be read or written: Bad file descriptor\n"
    assert code == 3


def test_with_closed_streams_a_run_ends_as_with_open_ones_and_nothing_goes_into_its_files() -> None:
    Path("nets.py").write_text(LEAKING)
    torch.save(nn.Sequential(nn.Conv2d(1, 1, 1)).state_dict(), "state.pt")
    arguments = ("convert", "state.pt", "--arch", "nets.py:net", "--out")
    assert closed(0, (*arguments, "a")) == (0, "LEAK\nLEAK\n")
    assert closed(2, (*arguments, "b"))[0] == 0
    assert closed(2, ("plan", "missing.pt"))[0] == 3
    assert closed(1, (*arguments, "c"))[0] == 3
    for folder in "abc":
        assert all(b"LEAK" not in path.read_bytes() for path in Path(folder).iterdir())
        load_converted(folder, architecture=nn.Sequential(nn.Conv2d(1, 1, 1)))
    assert Path("STREAMS").read_text() == 3 * "open\n"  # so it is for the programs that a run starts


def closed(stream: int, arguments: Sequence[str]) -> tuple[int, str]:
    """Runs the command line with one standard stream closed; if that is the input, output goes to standard error."""
    redirection = {0: "1>&2 <&-", 1: ">&-", 2: "2>&-"}[stream]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["sh", "-c", f'"$@" {redirection}', "sh", *COMMAND, *arguments]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    told = [line for line in ended.stderr.splitlines(keepends=True) if line.startswith(("conv2attn:", "LEAK"))]
    return ended.returncode, "".join(told)


def test_a_full_standard_error_does_not_hide_the_exit_code() -> None:
    with open("/dev/full", "wb") as full:
        code, _, _ = started(("plan", "missing.pt"), {}, stderr=full)
    assert code == 3


def test_a_reader_that_goes_away_ends_the_run_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code, _, err = started(("plan", "module.pt"), {}, stdout=writing)
    os.close(writing)
    assert (code, err) == (1, "")


FULL = """
import json, os, resource, sys
from conv2attn import cli
import conv2attn.proofs.show.show, conv2attn.proofs.show.page.write  # before the limit

arguments, limit = json.loads(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # a file that grows beyond this fails, as on a full disk
sys.argv = ["conv2attn", *arguments]
cli.main()
"""

WRITING = [
    ("convert", "module.pt", "--skip-unsupported", "--out", "x"),
    ("restore", "out", "--out", "x.pt"),
    ("restore", "out", "--out", "x.safetensors"),
    ("freeze", "net", "--tolerance", "1", "--size", "12x12", "--out", "x.pt2"),
    ("export", "net", "--to", "mha", "--size", "12x12", "--out", "x.safetensors"),
    ("show", "out", "--out", "x.html"),
    ("show", "out", "--out", "x.svg"),
    ("show", "out", "--out", "x.png"),
    ("soak", "--layers", "2", "--out", "x.json"),
    ("prove", "--only", "tail-bound", "--format", "markdown", "--out", "x.md"),
    ("demo", "--images", "1", "--out", "x"),
]


@pytest.mark.parametrize("arguments", WRITING)
def test_a_full_disk_is_told_in_one_sentence(arguments: Sequence[str]) -> None:
    save_converted(convert_model(nn.Conv2d(2, 3, 3)).model, "out")
    example = Architecture("conv2attn.convert.examples.networks:plain_cnn")
    save_converted(convert_model(plain_cnn()).model, "net", architecture=example)
    before = sorted(os.listdir())
    command = [sys.executable, "-c", FULL, json.dumps(arguments), "100"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == 3, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("conv2attn: ")
    assert "x" in last
    assert "Traceback" not in ended.stderr
    assert len(last) < 200
    assert [name for name in sorted(os.listdir()) if name != "x" or arguments[0] != "demo"] == before


LOUD = """
import os, sys
from torch import nn

class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
        )
        self.say()

    def forward(self, x):
        self.say()
        return self.net(x)

    def say(self):
        print("HERE \x1b[31m")
        sys.__stdout__.write("AROUND\\n")

def program():
    os.system("echo STARTED")
    return Loud()
"""
LOUD_NETWORK = ("loud.pt", "--arch", "nets.py:Loud", "--json")
LOUD_RUNS = [
    ("plan", *LOUD_NETWORK),
    ("convert", *LOUD_NETWORK, "--size", "8x8", "--out", "x"),
    ("restore", "converted.pt", *LOUD_NETWORK[1:], "--out", "x.pt"),
    ("show", *LOUD_NETWORK, "--out", "x.html"),
    ("show", *LOUD_NETWORK, "--out", "x.svg"),
    ("verify", *LOUD_NETWORK, "--random", "1", "--size", "8x8"),
    ("export", *LOUD_NETWORK, "--to", "onnx", "--size", "8x8", "--out", "x.onnx"),
    ("export", *LOUD_NETWORK, "--to", "mha", "--size", "8x8", "--out", "x.safetensors"),
    ("freeze", "converted.pt", *LOUD_NETWORK[1:], "--tolerance", "0.1", "--size", "8x8", "--out", "x.pt2"),
    ("melt", *LOUD_NETWORK, "--data", "digits", "--epochs", "1", "--seeds", "1", "--accelerator", "cpu", "--out", "x"),
]


def loud() -> None:
    """A network that prints, as a CNN and converted."""
    Path("nets.py").write_text(LOUD)
    network = build_architecture("nets.py:Loud", {})
    torch.save(network.state_dict(), "loud.pt")
    torch.save(convert_model(network).model.state_dict(), "converted.pt")


@pytest.mark.parametrize("arguments", LOUD_RUNS, ids=" ".join)
def test_with_json_a_result_is_alone_on_standard_output_whatever_the_network_prints(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    loud()
    capsys.readouterr()
    code, (out, err) = exit_code(*arguments), capsys.readouterr()
    assert code == 0, err
    assert json.loads(out)["command"] == arguments[0]
    assert "HERE" in err


def test_with_json_a_result_is_alone_whatever_programs_and_libraries_print() -> None:
    loud()
    code, out, err = started(("plan", "loud.pt", "--arch", "nets.py:program", "--json"), {})
    assert code == 0
    assert json.loads(out)["command"] == "plan"
    assert {"HERE \x1b[31m", "AROUND", "STARTED"} <= set(err.splitlines())


def test_every_command_keeps_its_result_alone() -> None:
    program: Any = get_command(app)
    assert {type(command) for command in program.commands.values()} == {Command}


def test_the_help_of_a_command_goes_to_standard_output() -> None:
    code, out, err = started(("plan", "--help"), {})
    assert (code, err) == (0, "")
    assert out.startswith("Usage: ")


def refused(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["conv2attn", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 3
    return capsys.readouterr().err


def test_a_result_replaces_no_other_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("module.pt").read_bytes()
    for arguments in (("soak", "--layers", "1"), ("verify", "module.pt")):
        said = refused((*arguments, "--out", "module.pt"), monkeypatch, capsys)
        assert "it stays" in said or "would be lost" in said
        assert Path("module.pt").read_bytes() == before


def test_a_sum_replaces_none_of_its_parts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.json").write_text('{"version": 1, "command": "soak"}')
    assert "would be lost" in refused(("merge", "a.json", "--out", "a.json"), monkeypatch, capsys)


def test_a_plot_replaces_no_other_picture() -> None:
    Path("photograph.svg").write_text("<svg>years of work</svg>")
    with pytest.raises(ValueError, match="it stays"):
        check_outputs((), plot=Path("photograph.svg"), markdown=None)
