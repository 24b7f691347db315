"""Writes a folder or a file so that a run killed at any moment leaves the old one or the new one.

The new folder is written beside the target (``temporary.py``), forced to disk, and renamed onto it. Where the system
can exchange two names in one step (Linux, on most file systems), an existing folder is replaced so; elsewhere it is
renamed aside first, and if the run is killed between the two renames, the next run puts it back. Nothing is removed
but what conv2attn wrote (``ownership.py``).

Raises:
    OutputError: By every function here, for everything that cannot or must not be written.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import OutputError, OutputExistsError
from .ownership import OURS, check_apart, check_only_ours, discard
from .temporary import (
    ASIDE,
    check_parent,
    clear_remains,
    file_system_errors,
    resolved,
    sync,
    sync_tree,
    temporary_beside,
)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write_folder(
    target: Path, write: Callable[[Path], None], *, force: bool = False, sources: Iterable[Path] = ()
) -> None:
    """Writes the folder ``target`` by calling ``write`` on a new folder that then takes its place.

    Args:
        target: The folder to write; a link is followed.
        write: Fills the empty folder that it is given with files of the names ``ownership.OURS``.
        force: Replace the folder if conv2attn wrote it and everything in it, or if it is empty.
        sources: Files and folders that are being read, which the target must not be or hold.

    Raises:
        OutputError: As ``check_target``, or the file system failed while writing. After this and after
            whatever ``write`` raises, the target is as before and nothing is left beside it.
    """
    target, sources = resolved(target), tuple(sources)
    check_target(target, force=force, sources=sources)
    with temporary_beside(target, OURS) as (temporary, interruptible), file_system_errors(target):
        with interruptible():
            check_target(target, force=force, sources=sources)  # again: another run may just have ended
            write(temporary)
            sync_tree(temporary)
            check_target(target, force=force, sources=sources)  # again: writing takes a while
        _put_in_place(temporary, target)
        sync(target.parent)


def write_file(
    target: Path, write: Callable[[Path], object], *, force: bool = False, sources: Iterable[Path] = ()
) -> None:
    """Writes the file ``target`` by calling ``write`` on a new path, whose file then takes its place.

    Args:
        target: The file to write; a link is followed.
        write: Writes the file whose path it is given.
        force: Replace a file that exists.
        sources: Files that are being read, none of which the target may be.

    Raises:
        OutputError: As ``check_file``, or the file system failed while writing. After this and after whatever
            ``write`` raises, the target is as before and nothing is left beside it.
    """
    target, sources = resolved(target), tuple(sources)
    check_file(target, force=force, sources=sources)
    with temporary_beside(target, (target.name,)) as (temporary, interruptible), file_system_errors(target):
        new = temporary / target.name
        with interruptible():
            write(new)
            sync(new)
            check_file(target, force=force, sources=sources)  # again: writing takes a while
        os.replace(new, target)
        sync(target.parent)


def check_file(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_file`` would refuse, and clears away what killed runs left beside it.

    Raises:
        OutputError: The target's parent is not a folder or cannot be written to; the target is not a plain file; it is
            one of the sources; it exists and ``force`` is not given.
    """
    target = resolved(target)
    check_parent(target)
    with file_system_errors(target):
        clear_remains(target, (target.name,))
        if target.is_dir():
            raise OutputError(f"{target} is a folder; the output is a file")
        if target.exists() and not target.is_file():
            raise OutputError(f"{target} is not a plain file; only a plain file is replaced")
        check_apart(target, sources)
        if target.exists() and not force:
            raise OutputExistsError(f"{target} exists, and force was not given")


def check_distinct(targets: Iterable[Path]) -> None:
    """Refuses outputs of one run of which one would replace another.

    Raises:
        OutputError: Two of them are the same file, perhaps by a link.
    """
    seen: dict[Path, Path] = {}
    for target in targets:
        if (first := seen.setdefault(resolved(target), target)) is not target:
            raise OutputError(f"{first} and {target} are the same file; each output takes a file of its own")


def check_target(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_folder`` would refuse, and clears away what killed runs left beside it.

    Raises:
        OutputError: The target's parent is no folder or cannot be written to; the target is a file; it is one of the
            sources or holds one; it holds something that conv2attn did not write; it exists and ``force`` is not given,
            or it is not writable.
    """
    target = resolved(target)
    check_parent(target)
    with file_system_errors(target):
        clear_remains(target, OURS)
        if not target.exists():
            return
        if not target.is_dir():
            raise OutputError(f"{target} is a file; the output is a folder")
        check_apart(target, sources)
        check_only_ours(target)
        if not force:
            raise OutputExistsError(f"{target} exists, and force was not given")
        if not os.access(target, os.W_OK | os.X_OK):
            raise OutputError(f"{target} cannot be replaced: it is not writable")


def _put_in_place(temporary: Path, target: Path) -> None:
    """Renames the temporary folder onto the target; what was there is deleted, or is the temporary then.

    Raises:
        OutputError: Something came into the target in the last moment; both are as before.
    """
    if not target.exists():
        temporary.rename(target)
    elif _exchange(temporary, target):
        try:
            check_only_ours(temporary, target=target)
        except OutputError:
            _exchange(temporary, target)
            raise
    else:
        aside = temporary.with_name(temporary.name + ASIDE)
        target.rename(aside)
        try:
            check_only_ours(aside, target=target)
            temporary.rename(target)
        finally:
            if not target.exists():
                aside.rename(target)
        discard(aside)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names in one step; False, and nothing done, where the system cannot."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    failed = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return not failed
