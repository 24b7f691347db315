"""Processes that tests start: they hear interrupts, and end with the test, with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
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
    # A job in the background ignores interrupts, and one behind nohup the end of its terminal.
    heard: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    inherited = {number: signal.signal(number, handler) for number, handler in heard.items()}
    try:
        process = subprocess.Popen(list(map(str, command)), start_new_session=True, **options)
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # all of them have ended by themselves
                os.killpg(process.pid, signal.SIGKILL)


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; "" if it ends without.

    Raises:
        queue.Empty: It has printed none while ``PATIENCE`` lasted.
    """
    output, found = process.stdout, SimpleQueue[str]()
    assert output is not None
    threading.Thread(target=lambda: found.put(output.readline()), daemon=True).start()
    return found.get(timeout=PATIENCE)


def finished(command: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a process to its end, as ``subprocess.run`` does, but not for ever."""
    with started(command, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(list(map(str, command)), process.returncode, out, err)
