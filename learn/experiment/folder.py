"""The folder of an experiment: what it is, its runs, and their heads.

The heads of a network are recorded after each epoch while it trains, and read from these records to be drawn.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...convert.arguments import Size
from ...convert.errors import CheckpointError, SelectionError
from ...convert.plain import from_plain, read_json
from ..heads.attention import HeadAttention
from ..heads.likeness import layer_likeness
from ..heads.positions import Grid, moments
from ..kinds import encodings_of
from ..networks import AttentionNetwork
from ..training.folders import Record, begin_or_resume, read_records, write_json
from .recipes import Setting

EXPERIMENT, RESULTS = "experiment.json", "results.json"
_VERSION = 2


@dataclass(frozen=True)
class Experiment:
    """Description of an experiment: data as a user named them, runs with the seeds 0, 1, ... of each encoding.

    Attributes:
        images: Channels, rows and columns of an image, and classes.
    """

    data: str
    images: tuple[int, int, int, int]
    encodings: tuple[str, ...]
    seeds: int
    setting: Setting

    @property
    def grid(self) -> Grid:
        """Queries and keys of every layer of attention."""
        sizes = self.setting.sizes
        return Grid(self.images[1] // sizes.pixels, self.images[2] // sizes.pixels, sizes.padding)

    def to_json(self) -> dict[str, Any]:
        """The experiment as plain data."""
        return {"version": _VERSION, **asdict(self), "images": list(self.images), "encodings": list(self.encodings)}

    @classmethod
    def from_json(cls, found: Any) -> Experiment:
        """Reads the output of ``to_json``.

        Raises:
            ValueError: It is something else.
        """
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise ValueError(f"only version {_VERSION} is known")
        made = from_plain(cls, {name: value for name, value in found.items() if name != "version"})
        if encodings_of(",".join(made.encodings)) != made.encodings:  # each is a folder's name, too
            raise ValueError("its encodings are not names of encodings")
        sizes = made.setting.sizes
        if min(*made.images, made.seeds, sizes.pixels) < 1 or sizes.padding < 0:
            raise ValueError("its images, seeds or pixels are not positive")
        return made


@dataclass(frozen=True)
class Result:
    """A run that is over.

    Attributes:
        parameters: Numbers that it trained.
        best_epoch: The first epoch of its highest accuracy on the validation images.
        test: The accuracy of that epoch's network on the test images.
        nonlocality: Mean distance in pixels between a query and what it attends to, layer by layer, before training
            and after that epoch; empty where there are no heads.
    """

    encoding: str
    seed: int
    parameters: int
    best_epoch: int
    validation: float
    test: float
    nonlocality: tuple[tuple[float, ...], ...] = ()


def begin(folder: Path, experiment: Experiment, *, resume: bool) -> None:
    """Makes the folder, or checks that it holds this experiment, or one with fewer encodings or seeds.

    Raises:
        RunExistsError: It holds an experiment, and ``resume`` is not given.
        ConversionError: It holds another experiment, or something else.
    """
    file = folder / EXPERIMENT
    if resume and file.exists():
        found = read_experiment(folder)
        smaller = set(found.encodings) <= set(experiment.encodings) and found.seeds <= experiment.seeds
        if smaller and replace(found, encodings=experiment.encodings, seeds=experiment.seeds) == experiment:
            write_json(file, experiment.to_json())
    begin_or_resume(file, experiment.to_json(), resume=resume, what="experiment")


def run_folder(folder: Path, encoding: str, seed: int) -> Path:
    """Folder of a run."""
    return folder / encoding / f"seed-{seed}"


def is_experiment(folder: Path) -> bool:
    """Whether a folder is an experiment's."""
    return (folder / EXPERIMENT).is_file()


def read_experiment(folder: Path) -> Experiment:
    """Reads the description of a folder's experiment.

    Raises:
        CheckpointError: It cannot be read, or is something else.
    """
    try:
        return Experiment.from_json(read_json(folder / EXPERIMENT))
    except OSError as error:
        raise CheckpointError(f"{folder} holds no experiment: {EXPERIMENT} cannot be read") from error
    except ValueError as error:
        raise CheckpointError(f"{folder / EXPERIMENT} does not describe an experiment: {error}") from error


_DIGITS = 4  # after the point: a ten-thousandth of a pixel
_LEVELS = 255  # levels of a probability in a byte


@dataclass(frozen=True)
class HeadRecorder:
    """Records the heads of a network of attention; of any other network nothing.

    Attributes:
        images: What heads with content see, [count, channels, rows, columns].
    """

    images: Tensor

    def __call__(self, network: nn.Module) -> Record:
        """For each layer, its heads' centres, covariances and maps, and how convolutional they are.

        Centres are (row, column) from the query, in pixels; a covariance is (rows, both, columns), in square pixels.
        Maps are those of the query in the middle; where there is content, means over the images.
        """
        if not isinstance(network, AttentionNetwork):
            return {}
        weight = next(network.parameters())
        x = network.embed(self.images.to(weight))
        layers = []
        for block, layer in zip(network.blocks, network.layers, strict=True):
            layers.append(_layer(layer, network.grid, x))
            x = block(x)
        return {"layers": layers}


def _layer(layer: HeadAttention, grid: Grid, x: Tensor) -> dict[str, Any]:
    seen = None if layer.content is None else x
    maps = layer.probabilities(grid, seen)
    middle = maps[..., grid.middle, :].reshape(-1, *maps.shape[-3:-2], maps.shape[-1]).mean(0)
    offsets = grid.offsets(middle)[grid.middle]
    shape = layer.positions.shape(grid) if seen is None else moments(middle, offsets)
    likeness = layer_likeness(layer, Size(grid.rows, grid.columns), seen)
    return {
        "centers": _rounded(shape.centers),
        "covariances": _rounded(shape.covariances.flatten(1)[:, [0, 1, 3]]),
        "maps": packed(middle),
        "taps": [list(head.tap) for head in likeness.heads],
        "one_pixel": likeness.one_pixel,
        "spread": likeness.spread,
        "nonlocality": likeness.nonlocality,
        "distance": likeness.distance,
    }


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, _DIGITS) for value in row] for row in values.tolist()]


def packed(maps: Tensor) -> str:
    """Probabilities as a byte each, of 255, as text."""
    return base64.b64encode(maps.mul(_LEVELS).round().to(torch.uint8).cpu().numpy().tobytes()).decode("ascii")


def unpacked(text: str, shape: tuple[int, int, int]) -> Tensor:
    """The probabilities that ``packed`` was given, each within half of a 255th: [num_heads, key rows, key columns].

    Raises:
        ValueError: The text is something else.
    """
    content = base64.b64decode(text, validate=True)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).float().div(_LEVELS).view(shape)


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
            torch.tensor(found["centers"], device="cpu").view(heads, 2),
            torch.tensor(found["covariances"], device="cpu").view(heads, 3),
            unpacked(found["maps"], (heads, grid.key_rows, grid.key_columns)),
            torch.tensor(found["taps"], device="cpu").view(heads, 2),
            *(float(found[name]) for name in ("one_pixel", "spread", "nonlocality", "distance")),
        )


@dataclass(frozen=True)
class History:
    """A run of a network of attention, before training and after each epoch: accuracy in validation, and its layers."""

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
