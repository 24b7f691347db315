"""Writes a folder or a file so that a run killed at any moment leaves the old one or the new one.

The new folder is written beside the target, forced to disk, and renamed onto it. Where the system can
exchange two names in one step (Linux, on most file systems), an existing folder is replaced so; elsewhere it
is renamed aside first, and if the run is killed between the two renames, the next run puts it back. One run at
a time writes a target: its temporary folder is locked, and tells the others. Nothing is removed but what conv2attn
wrote (``ownership.py``).

Raises:
    OutputError: By every function here, for everything that cannot or must not be written.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import OutputError, OutputExistsError
from .locks import is_locked, lock, locked, unlock
from .ownership import OURS, check_apart, check_only_ours, discard

_ASIDE = ".old"
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
    target, sources = _resolved(target), tuple(sources)
    check_target(target, force=force, sources=sources)
    with _temporary(target, OURS) as temporary, _file_system_errors(target):
        check_target(target, force=force, sources=sources)  # again: another run may just have ended
        write(temporary)
        _sync_tree(temporary)
        check_target(target, force=force, sources=sources)  # again: writing takes a while
        _put_in_place(temporary, target)
        _sync(target.parent)


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
    target, sources = _resolved(target), tuple(sources)
    check_file(target, force=force, sources=sources)
    with _temporary(target, (target.name,)) as temporary, _file_system_errors(target):
        new = temporary / target.name
        write(new)
        _sync(new)
        check_file(target, force=force, sources=sources)  # again: writing takes a while
        os.replace(new, target)
        _sync(target.parent)


def check_file(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_file`` would refuse, and clears away what killed runs left beside it.

    Raises:
        OutputError: The target's parent is no folder or cannot be written to; the target is no plain file; it is one of
            the sources; it exists and ``force`` is not given.
    """
    target = _resolved(target)
    _check_parent(target)
    with _file_system_errors(target):
        _clear_remains(target, (target.name,))
        if target.is_dir():
            raise OutputError(f"{target} is a folder; the output is a file")
        if target.exists() and not target.is_file():
            raise OutputError(f"{target} is no plain file; the output is one")
        check_apart(target, sources)
        if target.exists() and not force:
            raise OutputExistsError(f"{target} exists, and force was not given")


def check_target(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_folder`` would refuse, and clears away what killed runs left beside it.

    Raises:
        OutputError: The target's parent is no folder or cannot be written to; the target is a file; it is one of the
            sources or holds one; it holds something that conv2attn did not write; it exists and ``force`` is not given.
    """
    target = _resolved(target)
    _check_parent(target)
    with _file_system_errors(target):
        _clear_remains(target, OURS)
        if not target.exists():
            return
        if not target.is_dir():
            raise OutputError(f"{target} is a file; the output is a folder")
        check_apart(target, sources)
        check_only_ours(target)
        if not force:
            raise OutputExistsError(f"{target} exists, and force was not given")


def _check_parent(target: Path) -> None:
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{target} cannot be written: the folder {target.parent} is not writable")


@contextmanager
def _temporary(target: Path, names: Collection[str]) -> Iterator[Path]:
    """An empty folder beside the target, whose name says which run on which machine it belongs to.

    While it is there, no other run gets one for this target: each run locks its own, and the system frees the lock
    of a run that is killed. At the end it is deleted; after an exchange it is the old folder.

    Args:
        target: What is written.
        names: Names of the files that the folder may hold, which are deleted with it.

    Raises:
        OutputError: Another run is writing the target.
    """
    run = f"{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}"
    temporary = target.with_name(f".{target.name}.tmp-{run}")
    try:
        with _file_system_errors(target), locked(target.parent):
            if any(is_locked(entry) for entry in target.parent.iterdir() if _is_temporary(entry, target)):
                raise OutputError(f"{target} cannot be written: another run is writing it")
            temporary.mkdir()
            held = lock(temporary)
        try:
            yield temporary
        finally:
            unlock(held)
    finally:
        discard(temporary, names)


@contextmanager
def _file_system_errors(target: Path) -> Iterator[None]:
    """Turns what the file system raises into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error


def _resolved(target: Path) -> Path:
    """Follows links, so that a rename replaces the folder and not a link to it."""
    return Path(os.path.realpath(target))


def _is_temporary(entry: Path, target: Path) -> bool:
    """Whether a name is that of a run's temporary folder for the target."""
    return entry.name.startswith(f".{target.name}.tmp-")


def _clear_remains(target: Path, names: Collection[str]) -> None:
    """Deletes what runs that are no longer alive left beside the target.

    Only names with this machine's name count, since only here can a process number be looked up. A number
    that another process has by now keeps its folder until a later run. A folder that was renamed aside when
    its run was killed goes back first.
    """
    prefix, node, aside = (re.escape(text) for text in (f".{target.name}.tmp-", platform.node(), _ASIDE))
    remains = re.compile(rf"{prefix}(\d{{1,9}})-[0-9a-f]{{8}}-{node}({aside})?")
    for entry in list(target.parent.iterdir()):
        match = remains.fullmatch(entry.name)
        if match is None or _is_alive(int(match[1])):
            continue
        if match[2] is not None and not target.exists():
            entry.rename(target)
        else:
            discard(entry, names)


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there, os.kill would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def _sync_tree(folder: Path) -> None:
    """Forces every file and folder to disk, the contents before what lists them."""
    for parent, _, files in os.walk(folder, topdown=False):
        for path in (*(Path(parent, file) for file in files), Path(parent)):
            _sync(path)


def _sync(path: Path) -> None:
    if sys.platform == "win32":
        return  # there, neither a folder nor a file opened for reading can be synced
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


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
        aside = temporary.with_name(temporary.name + _ASIDE)
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
