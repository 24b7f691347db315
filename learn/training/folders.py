"""The folder of a run, a comparison or an experiment: it begins new or empty, with a file that says what it is.

A run's folder then has records of each epoch, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...convert.errors import CheckpointError, ConversionError, OutputError, RunExistsError
from ...convert.plain import json_text, read_json
from ...convert.write import check_file, write_file


def begin_or_resume(file: Path, described: dict[str, Any], *, resume: bool, what: str) -> None:
    """Makes a folder in an existing one, or takes an empty one, and writes its first file; or checks that it has it.

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


RECORDS = "records.json"
Record = dict[str, Any]
Recorder = Callable[[nn.Module], Record]
"""Looks at a network in eval mode after an epoch and returns plain data; for several processes it must be picklable."""


def nothing_more(_: nn.Module) -> Record:
    """Records nothing but what every run does."""
    return {}


def write_records(records: Sequence[Record], folder: Path) -> None:
    """Writes the records of all epochs so far."""
    write_json(folder / RECORDS, list(records))


def read_records(folder: Path) -> list[Record]:
    """The records of a run, an epoch each; the first is of the network before training.

    Raises:
        CheckpointError: They cannot be read, or are something else.
    """
    try:
        found = read_json(folder / RECORDS)
    except OSError as error:
        raise CheckpointError(f"{folder} holds no run: {RECORDS} cannot be read ({error.strerror})") from error
    if not (isinstance(found, list) and found and all(isinstance(each, dict) and "epoch" in each for each in found)):
        raise CheckpointError(f"{folder / RECORDS} does not hold the records of a run")
    return found


def scalars(record: Record) -> dict[str, float]:
    """The numbers of a record that are not of single layers, one level deep."""
    nested = {
        f"{name}_{key}": inner for name, each in record.items() if isinstance(each, dict) for key, inner in each.items()
    }
    return {name: value for name, value in (record | nested).items() if isinstance(value, int | float)}
