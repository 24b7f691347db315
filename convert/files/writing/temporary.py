"""The folder beside a target in which its successor is written, and what killed runs left there.

One run at a time writes a target: its temporary folder is locked, and tells the others.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import OutputError
from .locks import is_locked, lock, locked, unlock
from .ownership import discard
from .uninterrupted import Interruptible, uninterrupted

ASIDE = ".old"


def check_parent(target: Path) -> None:
    """Refuses a target whose folder is not there or takes no file.

    Raises:
        OutputError: It is so.
    """
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{target} cannot be written: the folder {target.parent} is not writable")


@contextmanager
def temporary_beside(target: Path, names: Collection[str]) -> Iterator[tuple[Path, Interruptible]]:
    """An empty folder beside the target, whose name says which run on which machine it belongs to.

    Signals that end a run wait until it is gone, except in the inner contexts that come with it.

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
    with uninterrupted() as interruptible:
        held = None
        try:
            with interruptible(), file_system_errors(target), locked(target.parent):
                if any(is_locked(entry) for entry in target.parent.iterdir() if _is_temporary(entry, target)):
                    raise OutputError(f"{target} cannot be written: another run is writing it")
                temporary.mkdir()
                held = lock(temporary)
            yield temporary, interruptible
        finally:
            unlock(held)
            discard(temporary, names)


@contextmanager
def file_system_errors(target: Path) -> Iterator[None]:
    """Turns what the file system raises into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error


def resolved(target: Path) -> Path:
    """Follows links, so that a rename replaces the folder and not a link to it."""
    return Path(os.path.realpath(target))


def _is_temporary(entry: Path, target: Path) -> bool:
    """Whether a name is that of a run's temporary folder for the target."""
    return entry.name.startswith(f".{target.name}.tmp-")


def clear_remains(target: Path, names: Collection[str]) -> None:
    """Deletes what runs that are no longer alive left beside the target.

    Only names with this machine's name count, since only here can a process number be looked up. A number
    that another process has by now keeps its folder until a later run. A lock keeps it as well: a run in another
    container may have the same machine's name, and a number that is not known here. A folder that was renamed aside
    when its run was killed goes back first.
    """
    prefix, node, aside = (re.escape(text) for text in (f".{target.name}.tmp-", platform.node(), ASIDE))
    remains = re.compile(rf"{prefix}(\d{{1,9}})-[0-9a-f]{{8}}-{node}({aside})?")
    for entry in list(target.parent.iterdir()):
        match = remains.fullmatch(entry.name)
        if match is None or _is_alive(int(match[1])) or is_locked(entry):
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


def sync_tree(folder: Path) -> None:
    """Forces every file and folder to disk, the contents before what lists them."""
    for parent, _, files in os.walk(folder, topdown=False):
        for path in (*(Path(parent, file) for file in files), Path(parent)):
            sync(path)


def sync(path: Path) -> None:
    """Forces a file or a folder to disk."""
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
