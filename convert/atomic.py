"""Writes a folder so that a run killed at any moment leaves the old folder or the new one.

The new folder is written beside the target, forced to disk, and renamed onto it. Where the system can
exchange two names in one step (Linux, on most file systems), an existing folder is replaced so; elsewhere it
is renamed aside first, and if the run is killed between the two renames, the next run puts it back.

Raises:
    OutputError: By both functions here, for every folder that cannot or must not be written.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conv2attn.convert.errors import OutputError

_CONFIG = "config.json"
FORMAT = "conv2attn"  # the value of "format" in a config.json of ours
_ASIDE = ".old"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write_folder(target: Path, write: Callable[[Path], None], *, force: bool = False) -> None:
    """Writes the folder ``target`` by calling ``write`` on a new folder that then takes its place.

    Args:
        target: The folder to write; a link is followed.
        write: Fills the empty folder that it is given.
        force: Replace the folder if conv2attn wrote it, or if it is empty.

    Raises:
        OutputError: As ``check_target``, or the file system failed while writing. After this and after
            whatever ``write`` raises, the target is as before and nothing is left beside it.
    """
    target = _resolved(target)
    check_target(target, force=force)
    run = f"{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}"
    temporary = target.with_name(f".{target.name}.tmp-{run}")
    try:
        with _file_system_errors(target):
            temporary.mkdir()
            write(temporary)
            _sync_tree(temporary)
            check_target(target, force=force)  # again: writing takes a while
            _put_in_place(temporary, target)
            _sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # after an exchange, the old folder


def check_target(target: Path, *, force: bool = False) -> None:
    """Refuses a target that ``write_folder`` would refuse, and clears away what killed runs left beside it.

    Raises:
        OutputError: The target's parent is no folder or cannot be written to; the target is a file; it exists
            and ``force`` is not given; it holds something, but no config.json of conv2attn's.
    """
    target = _resolved(target)
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{target} cannot be written: the folder {target.parent} is not writable")
    with _file_system_errors(target):
        _clear_remains(target)
        if not target.exists():
            return
        if not target.is_dir():
            raise OutputError(f"{target} is a file; the output is a folder")
        if any(target.iterdir()) and not _is_ours(target / _CONFIG):
            raise OutputError(f"{target} holds files but no {_CONFIG} of ours: conv2attn did not write it; it stays")
        if not force:
            raise OutputError(f"{target} exists; --force (in Python, force=True) replaces it")


def _is_ours(config: Path) -> bool:
    """Whether a file is a config.json that conv2attn wrote; other programs write files of this name too."""
    try:
        data = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


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


def _clear_remains(target: Path) -> None:
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
            shutil.rmtree(entry, ignore_errors=True)


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
    """Renames the temporary folder onto the target; what was there is deleted, or is the temporary then."""
    if not target.exists():
        temporary.rename(target)
    elif not _exchange(temporary, target):
        aside = temporary.with_name(temporary.name + _ASIDE)
        target.rename(aside)
        try:
            temporary.rename(target)
        finally:
            if not target.exists():
                aside.rename(target)
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names in one step; False, and nothing done, where the system cannot."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    failed = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return not failed


def write_file(target: Path, content: bytes, *, force: bool = False) -> None:
    """Writes one file so that a run killed at any moment leaves the old file or the new one.

    Raises:
        OutputError: As ``check_file``, or the file system failed while writing; the target is then as before.
    """
    check_file(target, force=force)
    target = _resolved(target)
    temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}")
    try:
        with _file_system_errors(target):
            temporary.write_bytes(content)
            _sync(temporary)
            temporary.replace(target)
            _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def check_file(target: Path, *, force: bool = False) -> None:
    """Refuses a file that ``write_file`` would refuse.

    Raises:
        OutputError: The target's parent is no folder or cannot be written to; the target is a folder; it exists and
            ``force`` is not given.
    """
    target = _resolved(target)
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{target} cannot be written: the folder {target.parent} is not writable")
    if target.is_dir():
        raise OutputError(f"{target} is a folder; the output is a file")
    if target.exists() and not force:
        raise OutputError(f"{target} exists; --force (in Python, force=True) replaces it")
