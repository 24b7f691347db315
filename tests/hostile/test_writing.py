"""Whatever happens to a run that writes, the old result is there or the new one, whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.errors import OutputError
from conv2attn.convert.files.write import write_file, write_folder
from tests.processes import finished

KILLS = 50

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from torch import nn
from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.folder import read_folder

torch.set_num_threads(1)
out, kills = Path(sys.argv[1]), int(sys.argv[2])
conv = nn.Conv2d(64, 64, 3)

def save(number):
    nn.init.constant_(conv.weight, number)
    model = convert_model(nn.Sequential(conv)).model
    save_converted(model, out, architecture=Architecture("run:run", {"number": number}), force=True)

def held():
    config, checkpoint = read_folder(out)
    weight = checkpoint.state_dict["0.weight"]
    assert bool((weight == weight.flatten()[0]).all())
    return config.architecture.arguments["number"], int(weight.flatten()[0])

save(0)
start = time.monotonic()
save(0)
duration = time.monotonic() - start
chance = random.Random(5)
for number in range(1, kills + 1):
    child = os.fork()
    if child == 0:
        save(number)
        os._exit(0)
    time.sleep(chance.uniform(0, duration))
    os.kill(child, signal.SIGKILL)
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    print("killed" if killed else "done", *held(), flush=True)
save(-1)
print("done", *held())
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    return finished(command, env=environment)


def test_a_run_killed_at_any_of_fifty_moments_leaves_the_old_model_or_the_new_one_and_no_litter(tmp_path: Path) -> None:
    result = python(KILLED, str(tmp_path / "out"), str(KILLS))
    assert result.returncode == 0, result.stderr
    ends = [line.split() for line in result.stdout.splitlines()]
    last = 0
    for number, (end, config, weight) in enumerate(ends[:-1], start=1):
        assert config == weight
        assert int(weight) == number if end == "done" else int(weight) in (last, number)
        last = int(weight)
    assert [end for end, _, _ in ends].count("killed") >= KILLS // 2
    assert ends[-1] == ["done", "-1", "-1"]
    assert os.listdir(tmp_path) == ["out"]


RACE = r"""
import os, sys
from pathlib import Path
from conv2attn.convert.files.write import write_folder
from conv2attn.convert.errors import OutputError

ready, go = os.pipe()
children = {}
for number in range(8):
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)
        def write(folder):
            for name in ("config.json", "report.json", "report.html"):
                (folder / name).write_text('{"format": "conv2attn", "run": %d}' % number)
        try:
            write_folder(Path(sys.argv[1]), write)
        except OutputError as error:
            os.write(1, f"{number}|{error}\n".encode())
            os._exit(3)
        os._exit(0)
    children[child] = number
os.close(go)
codes = {children[child]: os.waitstatus_to_exitcode(status) for child, status in (os.wait() for _ in children)}
print(*(number for number, code in codes.items() if code == 0))
"""


def test_of_eight_runs_at_once_one_wins_and_the_others_say_why_not(tmp_path: Path) -> None:
    result = python(RACE, str(tmp_path / "out"))
    *refusals, winners = result.stdout.splitlines()
    assert result.stderr == ""
    assert len(winners.split()) == 1
    assert len(refusals) == 7
    assert all("another run is writing it" in line or "exists, and force was not given" in line for line in refusals)
    contents = {path.read_text() for path in (tmp_path / "out").iterdir()}
    assert [json.loads(text)["run"] for text in contents] == [int(winners)]
    assert os.listdir(tmp_path) == ["out"]


def test_a_target_that_another_run_is_writing_is_refused_even_with_force(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        with pytest.raises(OutputError, match="another run is writing it"):
            write_folder(tmp_path / "out", lambda _: None, force=True)
        with pytest.raises(OutputError, match="another run is writing it"):
            write_file(tmp_path / "out", lambda _: None, force=True)
        (folder / "config.json").write_text('{"format": "conv2attn"}')

    write_folder(tmp_path / "out", write)
    assert os.listdir(tmp_path) == ["out"]
    write_folder(tmp_path / "out", lambda _: None, force=True)


def test_a_file_is_replaced_only_by_force_and_only_whole(tmp_path: Path) -> None:
    target = tmp_path / "w"
    write_file(target, lambda path: path.write_text("old"))
    with pytest.raises(OutputError, match="force was not given"):
        write_file(target, lambda path: path.write_text("new"))

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left on device"):
        write_file(target, fail, force=True)
    assert target.read_text() == "old"
    write_file(target, lambda path: path.write_text("new"), force=True)
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["w"]


FULL = """
import json, os, resource, sys
from conv2attn.cli import main
from conv2attn.convert.files import network, restore  # before the runs, which then take less long

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # a file that grows beyond this fails, as on a full disk
for arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.argv = ["conv2attn", *arguments]
        main()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, open("stderr").read()]), flush=True)
os.unlink("stderr")
"""


def test_a_full_disk_leaves_the_old_state_and_is_told_with_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(nn.Sequential(nn.Conv2d(32, 32, 3)), "module.pt")
    save_converted(convert_model(nn.Conv2d(32, 32, 3)).model, "out")
    torch.save({}, "old.pt")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    runs = [["convert", "module.pt", "--out", target, "--force"] for target in ("out", "new")]
    runs += [["restore", "out", "--out", target, "--force"] for target in ("new.safetensors", "new.pt", "old.pt")]
    result = python(FULL, json.dumps(runs))
    assert result.returncode == 0, result.stderr
    ends = [json.loads(line) for line in result.stdout.splitlines()]
    assert [code for code, _ in ends] == [3] * len(runs)
    assert all(message.count("\n") == 1 and "cannot be written" in message for _, message in ends)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    load_converted("out")
