"""The folder of a run, a comparison or an experiment: it begins new or empty, with a file that says what it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...convert.errors import ConversionError, OutputError, RunExistsError
from ...convert.files.write import check_file, write_file
from ...convert.plain import json_text, read_json


def begin_or_resume(file: Path, described: dict[str, Any], *, resume: bool, what: str) -> None:
    """Makes a folder, or takes an empty one, and writes its first file; or checks that one began so.

    Args:
        file: In the folder, whose parent must exist.
        described: Contents of the file.
        resume: Whether the folder may have been begun.
        what: Noun for what is kept in it, for errors.

    Raises:
        RunExistsError: It has been begun, and ``resume`` is not given.
        ConversionError: The file describes something else.
        OutputError: The folder holds something else, or cannot be made or written.
    """
    folder = file.parent
    if file.exists():
        if not resume:
            raise RunExistsError(f"{folder} holds one {what}; it can be resumed, or another folder be taken")
        if read_json(file) != described:
            raise ConversionError(f"{folder} holds another {what}, which {file} describes")
        return
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from error
    check_file(file)
    if any(not entry.name.startswith(f".{file.name}.") for entry in folder.iterdir()):  # writing clears remains away
        raise OutputError(f"{folder} holds something else; {file.name} begins a new or an empty folder")
    write_json(file, described)


def write_json(file: Path, data: object, *, sources: Iterable[Path] = ()) -> None:
    """Writes plain data, over none of the sources; the file is the old one or the new one whenever the run ends."""
    text = json_text(data) + "\n"
    write_file(file, lambda path: path.write_text(text, encoding="utf-8"), force=True, sources=sources)
