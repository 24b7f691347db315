"""The folder of a run, of a comparison or of an experiment: begun with a file that says so, where nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...convert.errors import OutputError, RunExistsError
from ...convert.files.write import check_file, write_file
from ...convert.plain import as_unicode, json_text, read_json


def begin_or_resume(file: Path, described: dict[str, Any], *, resume: bool, what: str) -> None:
    """Makes a folder as ``begin_folder`` does, or sees that one was begun so.

    Args:
        file: As for ``begin_folder``.
        described: As for ``begin_folder``.
        resume: Whether the folder may exist.
        what: What is kept in it, for errors.

    Raises:
        RunExistsError: The folder exists, and ``resume`` is not given.
        OutputError: As ``begin_folder``, or the file is another.
    """
    if file.parent.exists() and not resume:
        raise RunExistsError(f"{file.parent} exists; it can be resumed if it is what a killed run left")
    if not file.exists():
        begin_folder(file, described)
    elif read_json(file) != described:
        raise OutputError(f"{file} is no file of ours; {what} is kept in a folder that began as one")


def begin_folder(file: Path, described: dict[str, Any]) -> None:
    """Makes a folder, or takes an empty one, and writes the file that makes all that is in it later ours.

    Args:
        file: In the folder; the folder's parent must exist.
        described: What the file holds.

    Raises:
        OutputError: The folder holds something else, or cannot be made or written, or TensorBoard cannot write in it.
    """
    folder = file.parent
    if (name := str(folder)) != as_unicode(name):
        raise OutputError(f"{folder} cannot be made: TensorBoard writes to paths in UTF-8 only")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from error
    check_file(file)
    if any(not entry.name.startswith(f".{file.name}.") for entry in folder.iterdir()):  # writing clears remains away
        raise OutputError(f"{folder} holds something else; {file.name} begins a new or an empty folder")
    text = json_text(described) + "\n"
    write_file(file, lambda path: path.write_text(text, encoding="utf-8"))
