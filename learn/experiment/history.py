"""Positions and attention of a run's heads after each epoch, read from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...convert.errors import CheckpointError, SelectionError
from ..heads.grid import Grid
from ..training.records import Record, read_records
from .folder import read_experiment, run_folder
from .recorder import unpacked


@dataclass(frozen=True)
class LayerRecord:
    """Record of a layer's heads after an epoch.

    Attributes:
        centers: In pixels from the query, (row, column), [num_heads, 2].
        covariances: In square pixels, (rows, both, columns), [num_heads, 3].
        maps: Attention of the middle query, within half of a 255th, [num_heads, key rows, key columns].
        taps: Nearest taps of a convolution, [num_heads, 2].
        one_pixel: Share of the heads that look at one pixel.
        spread: Mean over the heads, in pixels.
        nonlocality: Mean over the heads, in pixels.
        distance: From the convolution of the nearest taps, for inputs that vary by at most 1.
    """

    centers: Tensor
    covariances: Tensor
    maps: Tensor
    taps: Tensor
    one_pixel: float
    spread: float
    nonlocality: float
    distance: float

    @classmethod
    def of(cls, found: dict[str, Any], grid: Grid) -> LayerRecord:
        """Reads what ``HeadRecorder`` wrote."""
        heads = len(found["taps"])
        return cls(
            torch.tensor(found["centers"]).view(heads, 2),
            torch.tensor(found["covariances"]).view(heads, 3),
            unpacked(found["maps"], (heads, grid.key_rows, grid.key_columns)),
            torch.tensor(found["taps"]).view(heads, 2),
            *(float(found[name]) for name in ("one_pixel", "spread", "nonlocality", "distance")),
        )


@dataclass(frozen=True)
class History:
    """A run of a network of attention.

    Attributes:
        encoding: Its encoding.
        seed: Its seed.
        grid: Queries and keys of its layers.
        accuracies: On the validation images, before training and after each epoch.
        layers: For each of these, its layers.
    """

    encoding: str
    seed: int
    grid: Grid
    accuracies: list[float]
    layers: list[list[LayerRecord]]

    @property
    def best(self) -> int:
        """The first epoch of the highest accuracy."""
        return max(range(1, len(self.accuracies)), key=self.accuracies.__getitem__, default=0)


def read_history(folder: Path, encoding: str, seed: int = 0) -> History:
    """The heads of a run after each epoch.

    Raises:
        SelectionError: The experiment has no such run, or it is of no network of attention.
        CheckpointError: Its records cannot be read, or are something else.
    """
    experiment = read_experiment(folder)
    if encoding not in experiment.encodings or not 0 <= seed < experiment.seeds:
        raise SelectionError(f"{folder} has no run of {encoding} with seed {seed}")
    place = run_folder(folder, encoding, seed)
    records = read_records(place)
    if "layers" not in records[0]:
        raise SelectionError(f"{encoding} has no heads to look at")
    try:
        layers = [[LayerRecord.of(layer, experiment.grid) for layer in record["layers"]] for record in records]
        return History(encoding, seed, experiment.grid, _accuracies(records), layers)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{place} does not hold the records of such a run") from error


def read_accuracies(folder: Path, encoding: str, seeds: int) -> list[list[float]]:
    """For each seed, on the validation images before training and after each epoch.

    Raises:
        CheckpointError: Records cannot be read, are something else, or are not of equally many epochs.
    """
    try:
        found = [_accuracies(read_records(run_folder(folder, encoding, seed))) for seed in range(seeds)]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} does not hold the records of such runs") from error
    if len({len(accuracies) for accuracies in found}) > 1:
        raise CheckpointError(f"{folder} holds an experiment that is not over: runs of {encoding} differ in epochs")
    return found


def _accuracies(records: Sequence[Record]) -> list[float]:
    return [float(record["validation"]["accuracy"]) for record in records]
