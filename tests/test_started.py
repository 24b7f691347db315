"""What tests start ends with them, and hears interrupts even where the tests themselves do not."""

from __future__ import annotations

import os
import queue
import signal
import sys

import pytest

from tests import processes
from tests.processes import finished, next_line, started

SAYS_WHO_HEARS = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
STARTS_ANOTHER = """
import subprocess, sys
sleeper = [sys.executable, "-c", "import time; time.sleep(10_000)"]
child = subprocess.Popen(sleeper, pass_fds=[int(sys.argv[1])])
print("started", flush=True)
child.wait()
"""


def test_a_process_hears_interrupts_where_the_tests_run_in_the_background() -> None:
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert finished([sys.executable, "-c", SAYS_WHO_HEARS]).stdout == "True\n"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_what_a_process_started_ends_with_a_test_that_fails() -> None:
    reader, writer = os.pipe()  # its end is read when no process holds the writer any more
    with os.fdopen(reader) as held:
        with pytest.raises(ZeroDivisionError):
            start_another_and_fail(writer)
        assert held.read() == ""


def start_another_and_fail(writer: int) -> None:
    with started([sys.executable, "-c", STARTS_ANOTHER, str(writer)], pass_fds=[writer]) as process:
        os.close(writer)
        assert next_line(process) == "started\n"
        raise ZeroDivisionError


def test_a_process_that_never_speaks_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    with started([sys.executable, "-c", "import time; time.sleep(10_000)"]) as process, pytest.raises(queue.Empty):
        next_line(process)
    assert process.returncode == -signal.SIGKILL
