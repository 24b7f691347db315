"""What may not be read or written is told so, and stays; for the superuser too, who here has no such powers."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from conv2attn.convert import convert_model, save_converted
from tests.processes import finished

_DROP, _OVERRIDE, _READ = 24, 1, 2  # of prctl: PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

RUNS = """
import json, os, sys
from conv2attn.cli import main
from conv2attn.convert.files import network, restore

for arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        for descriptor, name in ((1, os.devnull), (2, "../told")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["conv2attn", *arguments]
        main()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, open("../told").read()]), flush=True)
"""


def powerless() -> None:
    """The program that this process will become has to keep to permissions, whoever runs it."""
    for capability in (_OVERRIDE, _READ):
        ctypes.CDLL(None).prctl(_DROP, capability)  # fails where there is no such power


def held(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder, with its permissions and bytes; read with the powers of this process, or not at all."""
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b"")
        for path in sorted(folder.rglob("*"))
    }


def test_what_may_not_be_read_or_written_is_refused_and_stays(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "fixed").mkdir(parents=True)
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)), work / "module.pt")
    (work / "secret.pt").write_bytes((work / "module.pt").read_bytes())
    modes = {"secret.pt": 0o000, "fixed/module.pt": 0o444, "fixed/out": 0o755, "fixed": 0o555}
    modes |= {"kept/config.json": 0o444, "kept": 0o555, "hidden/config.json": 0o000, "hidden": 0o755}
    modes |= {"locked": 0o000}
    for name in ("fixed/out", "kept", "hidden", "locked"):
        save_converted(convert_model(nn.Sequential(nn.Conv2d(3, 2, 3))).model, work / name)
    (work / "fixed" / "module.pt").write_bytes((work / "module.pt").read_bytes())
    for name, mode in modes.items():
        (work / name).chmod(mode)
    before = held(work)
    refused = {
        "is not writable": [
            ["convert", "module.pt", "--out", "fixed/new"],
            ["convert", "module.pt", "--out", "fixed/out", "--force"],
            ["convert", "module.pt", "--out", "kept", "--force"],
            ["restore", "kept", "--out", "fixed/cnn.pt"],
            ["show", "kept", "--out", "fixed/page.html"],
            ["verify", "module.pt", "--out", "fixed/result.json"],
        ],
        "conv2attn did not write it; it stays": [["convert", "module.pt", "--out", "hidden", "--force"]],
        "is not readable": [
            ["plan", "secret.pt"],
            ["convert", "secret.pt", "--out", "new"],
            ["show", "hidden", "--out", "../page.html"],
            ["verify", "hidden"],
            ["restore", "hidden", "--out", "../cnn.pt"],
            ["plan", "locked/config.json"],
            ["show", "locked", "--out", "../page.html"],
        ],
        "": [["plan", "fixed/module.pt"], ["restore", "kept", "--out", "../cnn.pt"]],
    }
    runs = [(reason, run) for reason, some in refused.items() for run in some]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUNS, json.dumps([run for _, run in runs])]
    try:
        ended = finished(command, cwd=work, env=environment, preexec_fn=powerless)
        assert held(work) == before
    finally:
        for name in modes:
            (work / name).chmod(0o755)
    assert ended.returncode == 0, ended.stderr
    for (reason, run), line in zip(runs, ended.stdout.splitlines(), strict=True):
        code, told = json.loads(line)
        assert reason in told, (run, told)
        assert code in ({2, 3} if reason else {0}), (run, code, told)
        lines = 0 if code == 0 else 4 if told.startswith("Usage: ") else 1  # of wrong use, how it is right, too
        assert told.count("\n") == lines, (run, told)
