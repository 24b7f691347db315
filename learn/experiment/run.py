"""Runs an experiment: seed after seed every encoding, on the same images with the same schedule.

The test images are looked at when every run is over, with the network of its best epoch on the validation images. An
experiment can be resumed with more encodings or seeds. Its folder:

    DIR/experiment.json           data, encodings, seeds, sizes, recipe
    DIR/results.json              a row for each run, once all are over
    DIR/ENCODING/seed-N/          a run, as ``training/fit.py`` keeps it
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ...convert.arguments import as_integer
from ..data.images import ImageData
from ..training.fit import Trained, check_run, fit
from ..training.folders import write_json
from ..training.recipe import ALONE, Session, accuracy
from .folder import RESULTS, Experiment, HeadRecorder, Result, begin, run_folder
from .recipes import Setting, build, parameter_groups

_SEEN = 16  # validation images that heads with content are recorded on


def run_experiment(experiment: Experiment, data: ImageData, folder: Path, *, session: Session = ALONE) -> list[Result]:
    """Trains every network, then tests each once.

    Args:
        experiment: The experiment.
        data: The images.
        folder: Its folder, whose parent must exist.
        session: As for ``fit``; a resumed experiment may get more encodings or seeds.

    Raises:
        ConversionError: As ``begin`` and ``fit``.
    """
    # Refuse what any run would be refused, before anything is written.
    last = as_integer(experiment.seeds, "seeds", least=1) - 1
    replace(experiment.setting.recipe, seed=last)
    recorder = HeadRecorder(data.validation.taken(slice(_SEEN)).numbers())
    for encoding in experiment.encodings:
        network = _untrained(experiment.setting, data, encoding, seed=0)
        check_run(network, data, experiment.setting.recipe, recorder=recorder, machine=session.machine)
    begin(folder, experiment, resume=session.resume)
    # Train all networks.
    trained: dict[tuple[str, int], Trained] = {}
    for seed in range(experiment.seeds):
        for encoding in experiment.encodings:
            setting = experiment.setting.of(encoding)
            (folder / encoding).mkdir(exist_ok=True)
            found = fit(
                _untrained(setting, data, encoding, seed),
                data,
                replace(setting.recipe, seed=seed),
                run_folder(folder, encoding, seed),
                groups=partial(parameter_groups, setting=setting),
                recorder=recorder,
                session=session,
            )
            trained[encoding, seed] = found
            right = found.records[found.best_epoch]["validation"]["accuracy"]
            session.say(f"{encoding}, seed {seed}: {right:.1%} of the validation images, in epoch {found.best_epoch}")
    # Only now look at the test images.
    runs = [(encoding, seed) for encoding in experiment.encodings for seed in range(experiment.seeds)]
    results = [_tested(*run, trained[run], data) for run in runs]
    write_json(folder / RESULTS, [asdict(result) for result in results])
    return results


def _untrained(setting: Setting, data: ImageData, encoding: str, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(encoding, setting, data)


def _tested(encoding: str, seed: int, trained: Trained, data: ImageData) -> Result:
    first, best = trained.records[0], trained.records[trained.best_epoch]
    far = (tuple(layer["nonlocality"] for layer in record.get("layers", ())) for record in (first, best))
    return Result(
        encoding,
        seed,
        sum(parameter.numel() for parameter in trained.network.parameters()),
        trained.best_epoch,
        best["validation"]["accuracy"],
        accuracy(trained.network, data.test),
        tuple(layers for layers in far if layers),
    )
