"""Processes that tests start: they hear interrupts, and end with the test, with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

PATIENCE = 300  # seconds after which a process hangs, on however busy a machine


@contextmanager
def started(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own; when the context is left, also by a failure, the whole session is killed.

    Args:
        command: The program and its arguments.
        options: More arguments of ``Popen``; by default its output is piped.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores interrupts
    try:
        process = subprocess.Popen(list(map(str, command)), start_new_session=True, **options)
    finally:
        signal.signal(signal.SIGINT, inherited)
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # all of them have ended by themselves
                os.killpg(process.pid, signal.SIGKILL)


def finished(command: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a process to its end, as ``subprocess.run`` does, but not for ever."""
    with started(command, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(list(map(str, command)), process.returncode, out, err)
