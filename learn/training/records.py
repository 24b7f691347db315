"""Records of each epoch of a run, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...convert.errors import CheckpointError
from ...convert.files.write import write_file
from ...convert.plain import json_text, read_json

RECORDS = "records.json"
Record = dict[str, Any]
Recorder = Callable[[nn.Module], Record]
"""Looks at a network in eval mode after an epoch and returns plain data; for several processes it must be picklable."""


def nothing_more(_: nn.Module) -> Record:
    """Records nothing but what every run does."""
    return {}


def write_records(records: Sequence[Record], folder: Path) -> None:
    """Writes the file; it is the old one or the new one whenever the run ends."""
    text = json_text(list(records)) + "\n"
    write_file(folder / RECORDS, lambda path: path.write_text(text, encoding="utf-8"), force=True)


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
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, int | float):
            found[name] = value
        elif isinstance(value, dict):
            found |= {f"{name}_{key}": inner for key, inner in value.items() if isinstance(inner, int | float)}
    return found
