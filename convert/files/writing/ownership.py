"""What conv2attn wrote: the only files that it ever removes.

A folder of ours holds a ``config.json`` that says so, and plain files of the names below. Everything else in it, links
and folders among it, is somebody's: the folder then stays as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import CheckpointError, OutputError
from ..readers.common.limits import read_json

FORMAT = "conv2attn"  # the value of "format" in a config.json of ours
CONFIG, WEIGHTS, REPORT, PAGE = "config.json", "model.safetensors", "report.json", "report.html"
PROGRAM = "model.onnx"  # a whole network, where an ONNX file was converted
OURS = (CONFIG, WEIGHTS, REPORT, PAGE, PROGRAM)
_UNFINISHED = ".tmp"  # how the names of files begin that safetensors has not finished
_LISTED = 5


def is_ours(config: Path) -> bool:
    """Whether a file is a config.json that conv2attn wrote; other programs write files of this name too."""
    try:
        data = read_json(config)
    except (OSError, CheckpointError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def check_only_ours(folder: Path, *, target: Path | None = None) -> None:
    """Refuses a folder that holds anything that conv2attn did not write; an empty one holds nothing.

    Args:
        folder: The folder.
        target: What the error calls it, if that is another name.

    Raises:
        OutputError: It holds something else.
    """
    entries = sorted(folder.iterdir())
    if not entries:
        return
    called = target or folder
    if not (_is_plain_file(folder / CONFIG) and is_ours(folder / CONFIG)):
        raise OutputError(f"{called} holds files but no {CONFIG} of ours: conv2attn did not write it; it stays")
    foreign = [entry.name for entry in entries if entry.name not in OURS or not _is_plain_file(entry)]
    if foreign:
        more = f" and {len(foreign) - _LISTED} more" if len(foreign) > _LISTED else ""
        listed = ", ".join(map(repr, foreign[:_LISTED]))
        raise OutputError(f"{called} also holds {listed}{more}, which conv2attn did not write; it stays")


def check_apart(target: Path, sources: Iterable[Path]) -> None:
    """Refuses a target that is, or holds, what is being read.

    Folders and files are compared as the file system does, so that links and names in another case are no way around.

    Args:
        target: What is to be replaced.
        sources: The files and folders that are being read.

    Raises:
        OutputError: Replacing the target would remove one of them.
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


def discard(folder: Path, names: Collection[str] = OURS) -> None:
    """Removes the plain files of these names, and the folder if nothing else is in it; what cannot go stays."""
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if _is_plain_file(entry) and (entry.name in names or entry.name.startswith(_UNFINISHED)):
                entry.unlink()
        folder.rmdir()


def _is_plain_file(path: Path) -> bool:
    """Whether it is a file itself, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
