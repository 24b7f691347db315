"""Writes a folder or a file so that a run killed at any moment leaves the old one or the new one.

The new one is written into a temporary folder beside the target, forced to disk, and renamed onto the target. A file
takes the old one's place in that step. A folder's old one is renamed into the temporary folder just before; if the run
is killed between the two renames, the next run puts it back. Nothing is removed but what conv2attn wrote. One run at a
time writes a target. Nothing here needs torch, which commands import when their places are checked.

Raises:
    OutputError: By every function here, for everything that cannot or must not be written. The target is then as
        before, and nothing is left beside it.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import CheckpointError, OutputError, OutputExistsError
from .plain import read_object

FORMAT = "conv2attn"  # the value of "format" in a config.json of ours
CONFIG, WEIGHTS, REPORT, PAGE = "config.json", "model.safetensors", "report.json", "report.html"
PROGRAM = "model.onnx"  # a whole network, where an ONNX file was converted
OURS = (CONFIG, WEIGHTS, REPORT, PAGE, PROGRAM)
Write = Callable[[str], None]

_TEMPORARY, _OLD = ".tmp-", "replaced"
_BEGINNING = 2000  # bytes in which a mark stands
_STAYS = "so it is not replaced; choose another name"


def write_folder(
    target: Path, write: Callable[[Path], None], *, force: bool = False, sources: Iterable[Path] = ()
) -> None:
    """Writes the folder ``target`` by calling ``write`` on a new folder that then takes its place.

    Args:
        target: The folder to write; a link is followed.
        write: Fills the empty folder that it is given with files of the names ``OURS``.
        force: Replace the folder if conv2attn wrote it and everything in it, or if it is empty.
        sources: Files and folders that are being read, which the target must not be or hold.
    """

    def fill(new: Path) -> None:
        new.mkdir()
        write(new)

    _write(target, fill, check_target, force, tuple(sources))


def write_file(
    target: Path, write: Callable[[Path], object], *, force: bool = False, sources: Iterable[Path] = ()
) -> None:
    """Writes the file ``target``, likewise: ``write`` gets a new path; any plain file is replaced by force."""
    _write(target, write, check_file, force, tuple(sources))


def _write(
    target: Path, write: Callable[[Path], object], check: Callable[..., None], force: bool, sources: tuple[Path, ...]
) -> None:
    given, target = target, target.resolve()  # a rename replaces the folder and not a link to it
    check(given, force=force, sources=sources)
    with file_system_errors(target), _beside(target) as temporary:
        new = temporary / target.name
        write(new)
        for path in (*(new.iterdir() if new.is_dir() else ()), new):  # the contents before what lists them
            _sync(path)
        check(given, force=force, sources=sources)  # again: writing takes a while
        if target.is_dir():
            os.replace(target, temporary / _OLD)
        os.replace(new, target)
        _sync(target.parent)


@contextmanager
def marked_file(target: Path | None, *, marks: Collection[str], sources: Iterable[Path] = ()) -> Iterator[Write]:
    """Checks the place of a text before the work whose result it is, and yields the function that writes it.

    A text that conv2attn wrote is replaced without ``force``: one of the marks near its beginning identifies it.
    Nothing is written where the target is None.
    """

    def put(text: str) -> None:
        if target is not None:
            check_marked(target, marks, sources)
            write_file(target, lambda path: path.write_text(text, encoding="utf-8"), force=True, sources=sources)

    if target is not None:
        check_marked(target, marks, sources)
    yield put


def check_target(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_folder`` would refuse."""
    with _place(target, force, sources):
        if target.exists() and not target.is_dir():
            raise OutputError(f"{target} is a file; the output is a folder")
        entries = sorted(target.iterdir()) if target.exists() else []
        if entries and not is_ours(target):
            raise OutputError(f"{target} holds files that conv2attn did not write, {_STAYS}")
        for entry in entries:
            if entry.name not in OURS or entry.is_symlink() or not entry.is_file():
                raise OutputError(f"{target} also holds {entry.name!r}, which conv2attn did not write, {_STAYS}")


def check_file(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_file`` would refuse."""
    with _place(target, force, sources):
        if target.is_dir():
            raise OutputError(f"{target} is a folder; the output is a file")
        if target.exists() and not target.is_file():
            raise OutputError(f"{target} is not a plain file; only a plain file is replaced")


def check_marked(target: Path, marks: Collection[str], sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``marked_file`` would refuse."""
    check_file(target, force=True, sources=sources)
    with file_system_errors(target):
        if target.exists():
            with target.open("rb+") as file:  # as it will be written
                beginning = file.read(_BEGINNING).decode(errors="replace")
            if beginning and not any(mark in beginning for mark in marks):
                raise OutputError(f"conv2attn did not write {target}, {_STAYS}")


def check_apart(target: Path, sources: Iterable[Path]) -> None:
    """Refuses a target that is, or holds, what is being read, as the file system compares files."""
    for source in sources:
        if target.exists() and _is_within(source, target):
            raise OutputError(f"{target} cannot be written: the input {source} would be lost")


def check_outside(target: Path, source: Path) -> None:
    """Refuses a target in a folder whose entries are read, since the next run would read it too."""
    if source.exists() and _is_within(target.parent, source):
        raise OutputError(f"{target} cannot be written: it is inside {source}, and would be read as part of it")


def is_ours(folder: Path) -> bool:
    """Whether conv2attn wrote a folder's config.json; other programs write files of this name too."""
    try:
        return read_object(folder / CONFIG).get("format") == FORMAT
    except CheckpointError:
        return False


@contextmanager
def file_system_errors(target: Path) -> Iterator[None]:
    """Turns what the file system raises into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error


def _is_within(path: Path, folder: Path) -> bool:
    real = path.resolve()
    return any(place.exists() and place.samefile(folder) for place in (real, *real.parents))


@contextmanager
def _place(target: Path, force: bool, sources: Iterable[Path]) -> Iterator[None]:
    """Refuses a target whose folder, links followed, cannot be written; and last, one that is there."""
    folder = target.resolve().parent
    if not folder.is_dir():
        raise OutputError(f"{target} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{target} cannot be written: the folder {folder} is not writable")
    with file_system_errors(target):
        yield
        check_apart(target, sources)
        if target.exists() and not force:
            raise OutputExistsError(f"{target} exists already", cure="force=True replaces it")
        with tempfile.TemporaryFile(dir=folder) as first:  # a full disk and /proc say no to this alone
            first.write(b"\0")
            first.flush()
            os.fsync(first.fileno())


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A temporary folder beside the target, for the one run at a time that writes it.

    The lock's file lies beside the target, too, and is removed while it is held: who waited for it sees that it has
    no name any more (filelock compares), and takes a new one.
    """
    lock = FileLock(target.with_name(f".{target.name}.lock"), timeout=0, is_singleton=False)
    try:
        lock.acquire()
    except Timeout as error:
        held = Path(lock.lock_file).exists()  # else the file system takes no new file, which filelock waits for
        reason = "another run is writing it" if held else f"no file can be made in the folder {target.parent}"
        raise OutputError(f"{target} cannot be written: {reason}") from error
    try:
        for entry in list(target.parent.iterdir()):
            if entry.name.startswith(f".{target.name}{_TEMPORARY}"):  # a killed run left it
                _remove(entry, target)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}{_TEMPORARY}", dir=target.parent))
        try:
            yield temporary
        finally:
            _remove(temporary, target)
    finally:
        if os.name != "nt":  # there, filelock itself removes it
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _remove(temporary: Path, target: Path) -> None:
    """Deletes a temporary folder; what was renamed into it is put back unless something took its place."""
    if (temporary / _OLD).exists() and not target.exists():
        os.replace(temporary / _OLD, target)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
    except KeyboardInterrupt:  # between two files
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    if os.name == "nt":
        return  # there, neither a folder nor a file opened for reading can be synced
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)
