"""Writes a folder or a file so that a run killed at any moment leaves the old one or the new one.

The new one is written into a temporary folder beside the target, forced to disk, and renamed onto the target. A file
takes the old one's place in that step. A folder's old one is renamed aside just before; if the run is killed between
the two renames, the next run puts it back. Nothing is removed but what conv2attn wrote. One run at a time writes a
target.

Raises:
    OutputError: By every function here, for everything that cannot or must not be written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import CheckpointError, OutputError, OutputExistsError
from ..plain import read_json

FORMAT = "conv2attn"  # the value of "format" in a config.json of ours
CONFIG, WEIGHTS, REPORT, PAGE = "config.json", "model.safetensors", "report.json", "report.html"
PROGRAM = "model.onnx"  # a whole network, where an ONNX file was converted
OURS = (CONFIG, WEIGHTS, REPORT, PAGE, PROGRAM)
Write = Callable[[str], None]

_TEMPORARY, _ASIDE = ".tmp-", ".old-"
_BEGINNING = 2000  # bytes in which a mark stands
_LISTED = 5


def write_folder(
    target: Path, write: Callable[[Path], None], *, force: bool = False, sources: Iterable[Path] = ()
) -> None:
    """Writes the folder ``target`` by calling ``write`` on a new folder that then takes its place.

    Args:
        target: The folder to write; a link is followed.
        write: Fills the empty folder that it is given with files of the names ``OURS``.
        force: Replace the folder if conv2attn wrote it and everything in it, or if it is empty.
        sources: Files and folders that are being read, which the target must not be or hold.

    Raises:
        OutputError: As ``check_target``, or the file system failed while writing. After this and after
            whatever ``write`` raises, the target is as before and nothing is left beside it.
    """
    target, sources = _resolved(target), tuple(sources)
    check_target(target, force=force, sources=sources)
    with _beside(target) as temporary:
        new = temporary / target.name
        new.mkdir()
        write(new)
        _sync_tree(new)
        check_target(target, force=force, sources=sources)  # again: writing takes a while
        aside = target.with_name(f".{target.name}{_ASIDE}{temporary.name[-8:]}")
        if target.exists():
            os.replace(target, aside)
        try:
            os.replace(new, target)
        except BaseException:
            if aside.exists():
                os.replace(aside, target)
            raise
        _sync(target.parent)
        shutil.rmtree(aside, ignore_errors=True)


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
    with _beside(target) as temporary:
        new = temporary / target.name
        write(new)
        _sync(new)
        check_file(target, force=force, sources=sources)  # again: writing takes a while
        os.replace(new, target)
        _sync(target.parent)


@contextmanager
def marked_file(target: Path | None, *, marks: Collection[str], sources: Iterable[Path] = ()) -> Iterator[Write]:
    """Checks the place of a text before the work whose result it is, and yields the function that writes it.

    A text of ours is replaced without being told to: it says near its beginning what wrote it.

    Args:
        target: The file, or None to write nothing.
        marks: One of these stands at the beginning of every such text.
        sources: Files that are being read, none of which the target may be.

    Raises:
        OutputError: As ``check_marked``, or the file system failed.
    """
    if target is None:
        yield lambda _: None
        return
    real = check_marked(target, marks, sources)

    def put(text: str) -> None:
        check_marked(real, marks, sources)
        write_file(real, lambda path: path.write_text(text, encoding="utf-8"), force=True, sources=sources)

    yield put


def check_target(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_folder`` would refuse.

    Raises:
        OutputError: The target's parent is no folder or cannot be written to; the target is a file; it is one of the
            sources or holds one; it holds something that conv2attn did not write; it exists and ``force`` is not given,
            or it is not writable.
    """
    target = _resolved(target)
    _check_parent(target)
    with file_system_errors(target):
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


def check_file(target: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a target that ``write_file`` would refuse.

    Raises:
        OutputError: The target's parent is not a folder or cannot be written to; the target is not a plain file; it is
            one of the sources; it exists and ``force`` is not given.
    """
    target = _resolved(target)
    _check_parent(target)
    with file_system_errors(target):
        if target.is_dir():
            raise OutputError(f"{target} is a folder; the output is a file")
        if target.exists() and not target.is_file():
            raise OutputError(f"{target} is not a plain file; only a plain file is replaced")
        check_apart(target, sources)
        if target.exists() and not force:
            raise OutputExistsError(f"{target} exists, and force was not given")


def check_marked(target: Path, marks: Collection[str], sources: Iterable[Path] = ()) -> Path:
    """Refuses a target that ``marked_file`` would refuse; else gives it with links followed.

    Raises:
        OutputError: The target is not a plain file in an existing folder, holds something else, or is being read.
    """
    target = _resolved(target)
    check_file(target, force=True, sources=sources)
    with file_system_errors(target):
        if not target.exists():
            return target
        if not os.access(target, os.W_OK):
            raise OutputError(f"{target} cannot be written: it is not writable")
        with target.open("rb") as file:
            beginning = file.read(_BEGINNING).decode(errors="replace")
    if beginning and not any(mark in beginning for mark in marks):
        raise OutputError(f"{target} exists, and conv2attn did not write it; it stays")
    return target


def check_distinct(targets: Iterable[Path]) -> None:
    """Refuses outputs of one run of which one would replace another.

    Raises:
        OutputError: Two of them are the same file, perhaps by a link.
    """
    known: dict[Path, Path] = {}
    for target in targets:
        if (first := known.setdefault(_resolved(target), target)) is not target:
            raise OutputError(f"{first} and {target} are the same file; each output takes a file of its own")


def check_apart(target: Path, sources: Iterable[Path]) -> None:
    """Refuses a target that is, or holds, what is being read, as the file system compares files.

    Raises:
        OutputError: Replacing the target would remove one of the sources.
    """
    if not target.exists():
        return
    for source in sources:
        real = Path(os.path.realpath(source))
        if any(place.exists() and place.samefile(target) for place in (real, *real.parents)):
            raise OutputError(f"{target} cannot be written: the input {source} would be lost")


def check_outside(target: Path, source: Path) -> None:
    """Refuses a target in a folder whose entries are read: it would be one of them, the next time.

    Raises:
        OutputError: It would be.
    """
    places = Path(os.path.realpath(target)).parents
    if source.exists() and any(place.exists() and place.samefile(source) for place in places):
        raise OutputError(f"{target} cannot be written: it is inside {source}, and would be read as a part of that")


def check_only_ours(folder: Path) -> None:
    """Refuses a folder that holds anything that conv2attn did not write; an empty one holds nothing.

    Raises:
        OutputError: It holds something else.
    """
    entries = sorted(folder.iterdir())
    if entries and not is_ours(folder / CONFIG):
        raise OutputError(f"{folder} holds files but no {CONFIG} of ours: conv2attn did not write it; it stays")
    foreign = [entry.name for entry in entries if entry.name not in OURS or entry.is_symlink() or not entry.is_file()]
    if foreign:
        more = f" and {len(foreign) - _LISTED} more" if len(foreign) > _LISTED else ""
        listed = ", ".join(map(repr, foreign[:_LISTED]))
        raise OutputError(f"{folder} also holds {listed}{more}, which conv2attn did not write; it stays")


def is_ours(config: Path) -> bool:
    """Whether a file is a config.json that conv2attn wrote; other programs write files of this name too."""
    try:
        data = read_json(config)
    except (OSError, CheckpointError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


@contextmanager
def file_system_errors(target: Path) -> Iterator[None]:
    """Turns what the file system raises into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A temporary folder beside the target, for the one run at a time that writes it.

    Raises:
        OutputError: Another run is writing the target, or the file system failed.
    """
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
    lock = FileLock(Path(tempfile.gettempdir()) / f"conv2attn-{name}.lock", timeout=0, mode=0o666, is_singleton=False)
    with file_system_errors(target):
        try:
            lock.acquire()
        except Timeout as error:
            raise OutputError(f"{target} cannot be written: another run is writing it") from error
        try:
            _clear_remains(target)
            temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}{_TEMPORARY}", dir=target.parent))
            try:
                yield temporary
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        finally:
            lock.release()


def _clear_remains(target: Path) -> None:
    """Puts back what a killed run renamed aside, and deletes what it left; no other run is writing the target."""
    for entry in list(target.parent.iterdir()):
        if entry.name.startswith(f".{target.name}{_ASIDE}") and not target.exists():
            os.replace(entry, target)
        elif entry.name.startswith((f".{target.name}{_TEMPORARY}", f".{target.name}{_ASIDE}")):
            shutil.rmtree(entry, ignore_errors=True)


def _check_parent(target: Path) -> None:
    """Refuses a target whose folder is not there or takes no file."""
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{target} cannot be written: the folder {target.parent} is not writable")


def _resolved(target: Path) -> Path:
    """Follows links, so that a rename replaces the folder and not a link to it."""
    return Path(os.path.realpath(target))


def _sync_tree(folder: Path) -> None:
    """Forces a folder and the files in it to disk, the contents before what lists them."""
    for path in (*folder.iterdir(), folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Forces a file or a folder to disk."""
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
