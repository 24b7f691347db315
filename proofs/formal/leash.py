"""Runs another program so that it ends when this process does, however that ends.

A small Python process starts the program and waits for the end of a pipe that only this process holds: the system
closes it even when this process is killed. Both ignore an interrupt from the keyboard: this process hears it too, and
ends them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_RUNNER = """
import os, signal, subprocess, sys, threading
signal.signal(signal.SIGINT, signal.SIG_IGN)
program = subprocess.Popen(sys.argv[2:])
threading.Thread(target=lambda: (os.read(int(sys.argv[1]), 1), program.kill()), daemon=True).start()
os._exit(program.wait() % 256)
"""


@contextmanager
def on_leash(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Starts a program, which is killed when the context or this process ends, if it has not ended by itself.

    Args:
        command: The program and its arguments.
        options: As ``subprocess.Popen`` takes them, for its streams and its folder.

    Yields:
        A process that has the program's streams, and ends with its exit code.
    """
    held, leash = os.pipe()
    try:
        runner = [sys.executable, "-I", "-S", "-c", _RUNNER, str(held), *command]
        process = subprocess.Popen(runner, pass_fds=[held], **options)
    except BaseException:
        os.close(leash)
        raise
    finally:
        os.close(held)
    with process:
        try:
            yield process
        finally:
            os.close(leash)
            if process.stdin is not None:
                with suppress(BrokenPipeError):  # what was not sent yet goes nowhere
                    process.stdin.close()


def run_leashed(command: Sequence[str], *, folder: Path, limit: float) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, with what it prints.

    Args:
        command: The program and its arguments.
        folder: Where it runs.
        limit: Seconds that it may take.

    Raises:
        subprocess.TimeoutExpired: It took longer, and was killed.
    """
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with on_leash(command, cwd=folder, encoding="utf-8", errors="replace", **streams) as process:
        out, err = process.communicate(timeout=limit)
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)
