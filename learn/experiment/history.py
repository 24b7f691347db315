"""Where the heads of a run looked, epoch after epoch, read from its records."""

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
    """Where the heads of a layer look after an epoch.

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
    grid = experiment.grid
    try:
        epochs = [[_layer(layer, grid) for layer in record["layers"]] for record in records]
        return History(encoding, seed, grid, accuracies(records), epochs)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{place} does not hold the records of heads") from error


def accuracies(records: Sequence[Record]) -> list[float]:
    """On the validation images, before training and after each epoch."""
    return [float(record["validation"]["accuracy"]) for record in records]


def _layer(layer: dict[str, Any], grid: Grid) -> LayerRecord:
    heads = len(layer["taps"])
    numbers = (float(layer[name]) for name in ("one_pixel", "spread", "nonlocality", "distance"))
    return LayerRecord(
        torch.tensor(layer["centers"]).view(heads, 2),
        torch.tensor(layer["covariances"]).view(heads, 3),
        unpacked(layer["maps"], (heads, grid.key_rows, grid.key_columns)),
        torch.tensor(layer["taps"]).view(heads, 2),
        *numbers,
    )
