"""Runs something that may fail, hang or take all memory, in a fork of this process."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

HELD, FAILED, ENDLESS, STUCK, CRASHED = "held", "failed", "too long", "stuck", "crashed"
_ASLEEP = 120.0  # seconds after which what computes nothing, and wants no processor, never will
_YES, _NO = 97, 98  # exit codes that nothing else has
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
    return outcome(condition, seconds=seconds) == HELD


def outcome(condition: Callable[[], bool], *, seconds: float) -> str:
    """How a fork ends that finds out whether something holds.

    Only what it computes counts, and not how long that takes while other programs have the processor.

    Args:
        condition: What it finds out.
        seconds: Of computing, that it has.

    Returns:
        ``HELD``, ``FAILED``, ``ENDLESS`` when its time is over, ``STUCK`` when it and what it started sleep for ever,
        ``CRASHED`` when a signal or an exit of its own ended it.
    """
    child = os.fork()
    if child == 0:
        _find(condition, seconds)
    pause, computed, since = 0.001, -1, time.monotonic()
    while time.monotonic() < since + _ASLEEP:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return _ended(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        if time.monotonic() > since + _ASLEEP / 4:
            awake, now = _ticks(child)
            if awake or now != computed:
                computed, since = now, time.monotonic()
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return STUCK


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return ENDLESS if os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGXCPU) else CRASHED
    return {_YES: HELD, _NO: FAILED}.get(os.WEXITSTATUS(status), CRASHED)


def _ticks(root: int) -> tuple[bool, int]:
    """Whether a process, or one that descends from it, wants a processor, and what they have computed."""
    children, awake, ticks = defaultdict(list), {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            process = int(path.parent.name)
            children[int(fields[1])].append(process)
            awake[process], ticks[process] = fields[0] in "RD", sum(map(int, fields[11:15]))
    family = [root]
    for process in family:
        family += children[process]
    return any(awake.get(process, False) for process in family), sum(ticks.get(process, 0) for process in family)


def _find(condition: Callable[[], bool], seconds: float) -> None:
    """Ends this process, with what it found out."""
    code = _NO
    try:
        os.setpgrp()  # with what the tests start; not a session, whose priority would be its own
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        be_silent()
        code = _YES if condition() else _NO
    finally:
        os._exit(code)


def be_silent() -> None:
    """Closes this process's standard streams."""
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    os.close(silence)
