"""Files and standard output for a result, checked before a campaign, so that hours of work are not lost after it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from ....convert.errors import OutputError
from ....convert.files.write import Write, file_system_errors, marked_file
from ...terminal.output import results_descriptor

ROOM = 2**17  # bytes; a result has a few thousand, whatever the number of layers


def result_file(target: Path | None, command: str, *, sources: Iterable[Path] = ()) -> AbstractContextManager[Write]:
    """``marked_file`` for the JSON that a command prints, on a disk that has room for it.

    Raises:
        OutputError: The disk is full.
    """
    if target is not None and target.parent.is_dir():
        _check_room(os.statvfs(target.parent), str(target))
    return marked_file(target, marks=[f'"command": "{command}"'], sources=sources)


def check_stdout(descriptor: int | None = None) -> None:
    """Refuses a standard output that will not take a result: a full disk or device.

    Raises:
        OutputError: It is closed, or is full.
    """
    descriptor = results_descriptor() if descriptor is None else descriptor
    with file_system_errors(Path("standard output")):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _check_room(os.fstatvfs(descriptor), "standard output")
        elif stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.write(descriptor, b"")


def _check_room(disk: os.statvfs_result, target: str) -> None:
    """Refuses a disk without room for a result."""
    if disk.f_bavail * disk.f_frsize < ROOM:
        raise OutputError(f"{target} cannot be written: its disk is full")
