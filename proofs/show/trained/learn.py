"""``conv2attn learn``: runs an experiment, and writes its results and films."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ....convert.files.write import write_file
from ....learn.data.kinds import load_data
from ....learn.experiment.folder import Experiment, Result, run_folder
from ....learn.experiment.history import read_history
from ....learn.experiment.recipes import Setting
from ....learn.experiment.run import run_experiment
from ....learn.networks.resnet import BLOCKS
from ....learn.training.recipe import Machine
from ...terminal.output import say
from ...terminal.table import Table
from ..film.write import film_page
from .table import HEADER, distance_rows, table_rows

FILM = "training.html"


@dataclass(frozen=True)
class Learned:
    """A finished experiment.

    Attributes:
        folder: Its folder.
        experiment: The experiment.
        results: A row for each run.
    """

    folder: Path
    experiment: Experiment
    results: tuple[Result, ...]
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        rows = [asdict(result) for result in self.results]
        return {"folder": str(self.folder), "experiment": self.experiment.to_json(), "results": rows}

    def shown(self) -> list[Table | str]:
        """Tables and lines, in the order in which they are read."""
        seeds = self.experiment.seeds
        depth = self.experiment.setting.sizes.depth
        far = tuple(distance_rows(self.results))
        layers = tuple(f"layer {number}" for number in range(1, depth + 1))
        return [
            Table(HEADER, tuple(table_rows(self.results))),
            *([Table(("mean attended distance, pixels", "training", *layers), far)] if far else []),
            f"Accuracy on the test images of {self.experiment.data}, seen once, after the best epoch on the validation "
            f"images; seed{'' if seeds == 1 else 's'} {', '.join(map(str, range(seeds)))}",
            f"Wrote {self.folder}",
        ]


def learn(
    data: str,
    encodings: tuple[str, ...],
    setting: Setting,
    folder: Path,
    *,
    seeds: int,
    machine: Machine | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Learned:
    """Runs an experiment, or the rest of an interrupted one.

    Args:
        data: The images, as ``load_data`` takes them.
        encodings: Encodings and residual networks.
        setting: Sizes and recipe.
        folder: Its folder.
        seeds: Number of runs of each.
        machine: Options for Lightning.
        resume: Continue an interrupted experiment.
        progress: Show bars on standard error.

    Raises:
        ConversionError: The data cannot be read, the folder holds something else, or training fails.
    """
    images = load_data(data, out=folder)
    kind = (images.channels, images.size.rows, images.size.columns, len(images.classes))
    experiment = Experiment(data, kind, encodings, seeds, setting)
    results = run_experiment(
        experiment,
        images,
        folder,
        machine=machine,
        resume=resume,
        progress=progress,
        on_run=lambda text: say(text, err=True),
    )
    for encoding in encodings:
        if encoding not in BLOCKS:
            _write_film(folder, encoding)
    return Learned(folder, experiment, tuple(results))


def _write_film(folder: Path, encoding: str) -> None:
    """The film of an encoding's first seed, beside its runs."""
    page = film_page(read_history(folder, encoding), title=f"{encoding} heads")
    write_file(run_folder(folder, encoding, 0).parent / FILM, lambda path: path.write_bytes(page.encode()), force=True)
