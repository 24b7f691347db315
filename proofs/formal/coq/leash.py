"""Runs another program so that it ends when this process does, however that ends.

A small Python process starts the program and waits for the end of a pipe that only this process holds: the system
closes it even when this process is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_RUNNER = """
import os, subprocess, sys, threading
program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (os.read(0, 1), program.kill()), daemon=True).start()
os._exit(program.wait() % 256)
"""


def run_leashed(command: Sequence[str], *, folder: Path, limit: float) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, with what it prints.

    Args:
        command: The program and its arguments.
        folder: Where it runs.
        limit: Seconds that it may take.

    Raises:
        subprocess.TimeoutExpired: It took longer, and was killed.
    """
    held, leash = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _RUNNER, *command],
            cwd=folder,
            stdin=held,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except BaseException:
        os.close(leash)
        raise
    finally:
        os.close(held)
    with process:
        try:
            out, err = process.communicate(timeout=limit)
        finally:
            os.close(leash)
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)
