"""Texts that replace an earlier one without being told to: each says near its beginning what wrote it.

The place and the room are taken before the work whose result the text is, so that hours of it are not lost at its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import OutputError
from .atomic import check_file
from .temporary import file_system_errors, resolved, sync, temporary_beside

Write = Callable[[str], None]

_BEGINNING = 2000  # bytes in which a mark stands


@contextmanager
def marked_file(
    target: Path | None, *, marks: Collection[str], room: int = 0, sources: Iterable[Path] = ()
) -> Iterator[Write]:
    """Reserves the file of a text and its space on the disk, and yields the function that writes it.

    A run that is killed, or does not write, leaves the old text. Without a target nothing is reserved or written.

    Args:
        target: The file; a link is followed. An earlier text of ours is replaced, and nothing else.
        marks: One of these stands at the beginning of every such text.
        room: Bytes that are taken on the disk at once.
        sources: Files that are being read, none of which the target may be.

    Raises:
        OutputError: The target is not a plain file in an existing folder, holds something else, is being read, or is
            being written by another run, or it cannot be written, or the disk is full.
    """
    if target is None:
        yield lambda _: None
        return
    real, sources = resolved(target), tuple(sources)
    check_marked(real, marks, sources)
    with temporary_beside(real, (real.name,)) as (temporary, interruptible), interruptible():
        new = temporary / real.name
        with file_system_errors(target):
            _write(new, bytes(room))
        yield lambda text: _put(new, real, text, marks, sources)


def check_marked(target: Path, marks: Collection[str], sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``marked_file`` would refuse.

    Raises:
        OutputError: As ``marked_file``.
    """
    check_file(target, force=True, sources=sources)
    with file_system_errors(target):
        if not target.exists():
            return
        if not os.access(target, os.W_OK):
            raise OutputError(f"{target} cannot be written: it is not writable")
        with target.open("rb") as file:
            beginning = file.read(_BEGINNING).decode(errors="replace")
    if beginning and not any(mark in beginning for mark in marks):
        raise OutputError(f"{target} exists, and conv2attn did not write it; it stays")


def _put(new: Path, target: Path, text: str, marks: Collection[str], sources: Iterable[Path]) -> None:
    """Writes a text into the room that was taken, and gives it its name."""
    with file_system_errors(target):
        _write(new, text.encode())
        sync(new)
        check_marked(target, marks, sources)  # again: the work took a while
        os.replace(new, target)
        sync(target.parent)


def _write(path: Path, content: bytes) -> None:
    """Makes a file of this content, in the room that it has on the disk already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with open(descriptor, "r+b") as file:
        file.write(content)
        file.truncate()
