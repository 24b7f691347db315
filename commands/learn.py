"""``conv2attn learn``: runs an experiment, and writes its results and films."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ..convert.write import write_file
from ..learn.data.datasets import load_data
from ..learn.experiment.folder import Experiment, Result, read_history, run_folder
from ..learn.experiment.recipes import Setting
from ..learn.experiment.run import run_experiment
from ..learn.kinds import BLOCKS
from ..learn.training.fit import check_packages
from ..learn.training.recipe import Session
from ..show.page.write import film_page
from ..show.pictures.training import HEADER, distance_rows, table_rows
from ..show.text import Table
from .terminal import Done

FILM = "training.html"


def learn(
    data: str, encodings: tuple[str, ...], setting: Setting, folder: Path, *, seeds: int, session: Session
) -> Done:
    """Runs an experiment, or the rest of an interrupted one. The arguments are the command's options."""
    check_packages(data)
    images = load_data(data, out=folder)
    kind = (images.channels, images.size.rows, images.size.columns, len(images.classes))
    experiment = Experiment(data, kind, encodings, seeds, setting)
    results = run_experiment(experiment, images, folder, session=session)
    for encoding in encodings:
        if encoding not in BLOCKS:
            page = film_page(read_history(folder, encoding), title=f"{encoding} heads").encode()
            target = run_folder(folder, encoding, 0).parent / FILM  # of the first seed, beside its runs
            write_file(target, partial(Path.write_bytes, data=page), force=True)
    plain = {"experiment": experiment.to_json(), "results": [asdict(result) for result in results]}
    return Done({"folder": str(folder), **plain}, _shown(folder, experiment, results))


def _shown(folder: Path, experiment: Experiment, results: Sequence[Result]) -> list[Table | str]:
    far, seeds = tuple(distance_rows(results)), experiment.seeds
    layers = (f"layer {number}" for number in range(1, experiment.setting.sizes.depth + 1))
    return [
        Table(HEADER, tuple(table_rows(results))),
        *([Table(("mean attended distance, pixels", "training", *layers), far)] if far else []),
        f"Accuracy on the test images of {experiment.data}, seen once, after the best epoch on the validation "
        f"images; seed{'' if seeds == 1 else 's'} {', '.join(map(str, range(seeds)))}",
        f"Wrote {folder}",
    ]
