"""Records of each epoch of a run, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...convert.errors import CheckpointError
from ...convert.plain import read_json
from .folders import write_json

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
