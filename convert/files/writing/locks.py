"""Locks of folders, which the system frees when the process that holds them ends, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_NO_LOCK = -1  # what is held where the system has no locks of folders


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder for a moment; waits for runs that hold it for theirs."""
    held = lock(folder, wait=True)
    try:
        yield
    finally:
        unlock(held)


def is_locked(folder: Path) -> bool:
    """Whether another run holds the lock of a folder."""
    held = lock(folder)
    unlock(held)
    return held is None and folder.is_dir()


def lock(folder: Path, *, wait: bool = False) -> int | None:
    """Locks a folder; gives an open descriptor, or None if another run has locked it or it is gone."""
    if sys.platform == "win32":
        return _NO_LOCK
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # to open a pipe would wait for who writes to it
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # a file system without locks
    return descriptor


def unlock(held: int | None) -> None:
    """Frees what ``lock`` gave."""
    if held is not None and held != _NO_LOCK:
        os.close(held)
