"""The folder of an experiment: what it is, and its runs.

DIR/experiment.json           data, encodings, seeds, sizes, recipe
DIR/results.json              a row for each run, once all are over
DIR/ENCODING/seed-N/          a run, as ``training/fit.py`` keeps it
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...convert.errors import CheckpointError
from ...convert.plain import from_plain, read_json
from ..heads.positions import Grid
from ..training.folders import begin_or_resume, write_json
from .recipes import Setting, encodings_of

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


def read_results(folder: Path) -> list[Result]:
    """The rows of all runs.

    Raises:
        CheckpointError: The experiment is not over, or the file holds something else.
    """
    if not (folder / RESULTS).exists():
        raise CheckpointError(f"{folder} holds an experiment that is not over: it has no {RESULTS}")
    try:
        rows: Any = read_json(folder / RESULTS)
        return [from_plain(Result, row) for row in rows]
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / RESULTS} does not hold the results of an experiment") from error
