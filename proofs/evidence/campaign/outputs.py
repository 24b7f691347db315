"""The place for a result: made sure of before a campaign, so that hours of work are not lost after it.

A result file is written beside its target and renamed onto it, so a killed run leaves the old file or the new one. Its
room on the disk is taken before the run.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....convert.errors import OutputError
from ....convert.files.writing.json_text import json_text
from ....convert.files.writing.ownership import check_apart

RESERVED = 2**17  # bytes; a result has a few thousand, whatever the number of layers
_BEGINNING, _MARK = 100, b'"command": "verify"'  # stands in the first bytes of every result

Write = Callable[[dict[str, Any]], None]


@contextmanager
def result_file(target: Path | None, *, sources: Iterable[Path] = ()) -> Iterator[Write]:
    """Takes the place and the room of a result, and gives what writes it; nothing happens without a target.

    Args:
        target: The file; a link is followed. An earlier result is replaced, and nothing else.
        sources: Files that are being read, none of which the target may be.

    Raises:
        OutputError: The target is no plain file in an existing folder, or holds something else, or is read, or cannot
            be written, or the disk is full.
    """
    if target is None:
        yield lambda _: None
        return
    target = Path(os.path.realpath(target)) if target.is_symlink() else target
    with _refusals(target):
        _check(target)
    check_apart(target, sources)
    temporary = target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")
    try:
        with _refusals(target):
            _write(temporary, bytes(RESERVED))
        yield lambda data: _put(temporary, target, data)
    finally:
        temporary.unlink(missing_ok=True)


def _check(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_file():
        raise OutputError(f"{target} cannot be written: it is not a plain file")
    if not os.access(target, os.W_OK):
        raise OutputError(f"{target} cannot be written: it is not writable")
    with target.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if beginning and _MARK not in beginning:
        raise OutputError(f"{target} exists, and conv2attn verify did not write it; it stays")


def _put(temporary: Path, target: Path, data: dict[str, Any]) -> None:
    """Writes a result into the room that was taken, and gives it its name."""
    with _refusals(target):
        _write(temporary, json_text(data).encode() + b"\n")
        os.replace(temporary, target)


def _write(path: Path, content: bytes) -> None:
    """Makes a file of this content, in the room that it has on the disk already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with open(descriptor, "r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def check_stdout(descriptor: int = 1) -> None:
    """Refuses a standard output that will not take a result: a full disk or device.

    Raises:
        OutputError: It is closed, or is full.
    """
    with _refusals(Path("standard output")):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            disk = os.fstatvfs(descriptor)
            if disk.f_bavail * disk.f_frsize < RESERVED:
                raise OutputError("standard output cannot be written: its disk is full")
        elif stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.write(descriptor, b"")


@contextmanager
def _refusals(target: Path) -> Iterator[None]:
    """Turns what the file system raises into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error
