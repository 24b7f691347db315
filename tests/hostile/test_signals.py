"""A signal that ends a run leaves nothing beside its output, at whatever step it comes."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.examples.pretrained import load_example
from conv2attn.convert.files.write import write_folder
from conv2attn.convert.files.writing.locks import lock, unlock
from tests.hostile.steps import told
from tests.processes import PATIENCE, finished, next_line, started

STEPS = 70  # more than a run has

# Writes a folder or a file in many processes, each of which gets a signal, or several in a row, at another step.
ENDED = """
import json, os, signal, sys
from pathlib import Path
from conv2attn.convert.files.writing import atomic
from conv2attn.convert.files.write import marked_file
from tests.hostile.steps import at_step, ending

kind, way, steps, signals = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
OURS = '{"format": "conv2attn"}'
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: sys.exit(128 + number))
signal.signal(signal.SIGINT, signal.default_int_handler)
if way == "two renames":
    atomic._exchange = lambda one, other: False

def write(folder):
    (folder / "config.json").write_text(OURS)
    (folder / "report.json").write_text("new")

def run(parent, fatal, sent, times):
    at_step(fatal, lambda: os.kill(os.getpid(), sent), times=times)
    if kind == "folder":
        atomic.write_folder(parent / "out", write, force=True)
    elif kind == "file":
        atomic.write_file(parent / "out" / "config.json", lambda path: path.write_text(OURS), force=True)
    else:
        with marked_file(parent / "out" / "config.json", marks=["conv2attn"], room=100) as put:
            put(OURS)

for sent, times in signals:
    for step in range(1, steps):
        parent = Path(f"{sent} {times}", str(step))
        (parent / "out").mkdir(parents=True)
        (parent / "out" / "config.json").write_text(OURS)
        (parent / "out" / "report.html").write_text("old")
        code = ending(lambda: run(parent, step, sent, times))
        print(code, *sorted(os.listdir(parent)), "|", *sorted(os.listdir(parent / "out")))
"""
OLD, NEW = ["config.json", "report.html"], ["config.json", "report.json"]


SIGNALS = [(signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGHUP, 1)]


@pytest.mark.parametrize(
    ("kind", "way"), [("folder", "exchange"), ("folder", "two renames"), ("file", "exchange"), ("text", "exchange")]
)
def test_a_signal_at_any_step_leaves_the_old_output_or_the_new_one_and_nothing_beside_it(
    kind: str, way: str, tmp_path: Path
) -> None:
    lines = told(ENDED, kind, way, STEPS, json.dumps(SIGNALS), folder=tmp_path)
    assert len(lines) == len(SIGNALS) * (STEPS - 1)
    for number, (sent, _) in enumerate(SIGNALS):
        ends = [line.split() for line in lines[number * (STEPS - 1) : (number + 1) * (STEPS - 1)]]
        codes = [int(code) for code, *_ in ends]
        assert set(codes) == {0, 128 + sent}
        assert codes == sorted(codes, reverse=True)  # every step was tried, and the signal was always heard
        assert all(found[1:3] == ["out", "|"] for found in ends)
        assert {tuple(found[3:]) for found in ends} == ({tuple(OLD), tuple(NEW)} if kind == "folder" else {tuple(OLD)})


WORKS = """
import signal, sys, time
import torch
from conv2attn import cli
from conv2attn.convert.files import save
from conv2attn.proofs.prover.process import Worker
from conv2attn.proofs.terminal.output import say  # a command sends what is merely printed to standard error

def busy(*_, **__):
    say("working")
    time.sleep(10**6)

def start(worker, started=Worker.start):
    started(worker)
    say("working")

save.write_safetensors, Worker.start = busy, start
if sys.argv[1] in ("verify", "demo", "bench"):
    torch.nn.modules.module.register_module_forward_pre_hook(busy)
if __name__ == "__main__":
    cli.main()
"""

LONG_COMMANDS = {
    "convert": ("module.pt", "--out", "out", "--force"),
    "verify": ("weights.pt", "--arch", "conv2attn.convert.examples.networks:plain_cnn", "--out", "result.json"),
    "demo": ("--out", "new"),
    "bench": ("--table", "ladder", "--markdown", "result.md"),
    "prove": ("--format", "markdown", "--out", "result.md"),
}


@pytest.mark.parametrize("sent", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("command", LONG_COMMANDS)
def test_a_long_command_that_is_ended_leaves_what_was_there_and_no_process(
    command: str, sent: signal.Signals, tmp_path: Path
) -> None:
    write_checkpoints(tmp_path)
    attention = convert_model(nn.Sequential(nn.Conv2d(3, 2, 3))).model
    save_converted(attention, tmp_path / "out")
    before = contents(tmp_path)
    program = [sys.executable, "-c", WORKS, command, *LONG_COMMANDS[command]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with started(program, cwd=tmp_path, env=environment) as process:
        assert next_line(process) == "working\n"
        process.send_signal(sent)
        _, told = process.communicate(timeout=PATIENCE)  # until the last process has closed its end
    assert (process.returncode, told) == (128 + sent, "")
    assert contents(tmp_path) == before


def test_a_command_that_ignores_that_its_terminal_closes_goes_on(tmp_path: Path) -> None:
    """As nohup asks it to."""
    ignores = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + WORKS.replace("time.sleep(10**6)", "")
    ignores = ignores.replace('say("working")', 'signal.raise_signal(signal.SIGHUP), say("working")', 1)
    write_checkpoints(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", ignores, "verify", *LONG_COMMANDS["verify"]]
    ended = finished(program, cwd=tmp_path, env=environment)
    assert (ended.returncode, ended.stdout.startswith("working\n")) == (0, True)
    assert (tmp_path / "result.json").exists()


def write_checkpoints(folder: Path) -> None:
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)), folder / "module.pt")
    torch.save(load_example("plain").state_dict(), folder / "weights.pt")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, with its bytes, and every folder."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def test_a_thread_writes_too_though_it_cannot_keep_signals(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "config.json").write_text('{"format": "conv2attn"}')

    thread = threading.Thread(target=write_folder, args=(tmp_path / "out", write))
    thread.start()
    thread.join()
    assert os.listdir(tmp_path / "out") == ["config.json"]


def test_a_run_in_another_container_keeps_its_folder_by_its_lock(tmp_path: Path) -> None:
    """It has this machine's name, and its number is nobody's here."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    beside = tmp_path / f".other.tmp-{child.pid}-0123abcd-{platform.node()}"
    own = tmp_path / f".out.tmp-{child.pid}-0123abcd-{platform.node()}"
    for folder in (beside, own):
        folder.mkdir()
        (folder / "config.json").write_text("half")
    held = lock(own)
    try:
        with pytest.raises(Exception, match="another run is writing it"):
            write_folder(tmp_path / "out", lambda _: None)
        assert os.listdir(own) == ["config.json"]
    finally:
        unlock(held)
    write_folder(tmp_path / "out", lambda _: None)
    assert sorted(os.listdir(tmp_path)) == [beside.name, "out"]
