"""Runs something that may fail, hang or take all memory, in a fork of this process."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator

LIMIT = 1800.0  # seconds, for what waits; long, since other programs may have the processor
_MEMORY = 2**34  # bytes of address space


class Counter:
    """A number that a process and its forks share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    @property
    def value(self) -> int:
        """The number that was set last, by whichever process."""
        return int.from_bytes(self._memory[:], "little")

    @value.setter
    def value(self, number: int) -> None:
        self._memory[:] = number.to_bytes(8, "little")


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends this process after so many seconds of computing."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def holds(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Whether a fork finds that something holds, within so many seconds of computing."""
    child = os.fork()
    if child == 0:
        _find(condition, seconds)
    end = time.monotonic() + LIMIT
    pause = 0.001
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return status == 0
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _find(condition: Callable[[], bool], seconds: float) -> None:
    """Ends this process, with 0 if the condition holds."""
    code = 1
    try:
        os.setpgrp()  # with what the tests start; not a session, whose priority would be its own
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        be_silent()
        code = 0 if condition() else 1
    finally:
        os._exit(code)


def be_silent() -> None:
    """Closes this process's standard streams."""
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    os.close(silence)
