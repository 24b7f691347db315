"""Runs an experiment: seed after seed every encoding, on the same images with the same schedule.

The test images are looked at when every run is over, with the network of its best epoch on the validation images. An
experiment can be resumed with more encodings or seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ...convert.arguments import as_integer
from ..data.images import ImageData
from ..training.evaluate import accuracy
from ..training.fit import Trained, check_machine, check_run, fit
from ..training.recipe import Machine
from .folder import Experiment, Result, begin, run_folder, write_results
from .recipes import Setting, build, parameter_groups
from .recorder import HeadRecorder

_SEEN = 16  # validation images that heads with content are recorded on


def run_experiment(
    experiment: Experiment,
    data: ImageData,
    folder: Path,
    *,
    machine: Machine | None = None,
    resume: bool = False,
    progress: bool = False,
    on_run: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Trains every network, then tests each once.

    Args:
        experiment: The experiment.
        data: The images.
        folder: Its folder, whose parent must exist.
        machine: Options for Lightning.
        resume: Continue an experiment that was interrupted, or gets more encodings or seeds.
        progress: Show bars on standard error.
        on_run: Told of each run that ends.

    Raises:
        ConversionError: As ``begin`` and ``fit``.
    """
    machine = machine or Machine()
    check_machine(machine)
    last = as_integer(experiment.seeds, "seeds", least=1) - 1
    replace(experiment.setting.recipe, seed=last)  # refused before anything is written
    for encoding in experiment.encodings:  # as above
        network = _untrained(experiment.setting, data, encoding, seed=0)
        check_run(network, data, experiment.setting.recipe, recorder=_recorder(data), machine=machine)
    begin(folder, experiment, resume=resume)
    trained = {}
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
                recorder=_recorder(data),
                machine=machine,
                resume=resume,
                progress=progress,
            )
            trained[encoding, seed] = found
            right = found.records[found.best_epoch]["validation"]["accuracy"]
            on_run(f"{encoding}, seed {seed}: {right:.1%} of the validation images, in epoch {found.best_epoch}")
    runs = [(encoding, seed) for encoding in experiment.encodings for seed in range(experiment.seeds)]
    results = [_tested(*run, trained[run], data) for run in runs]
    write_results(folder, results)
    return results


def _untrained(setting: Setting, data: ImageData, encoding: str, seed: int) -> nn.Module:
    """A run's network, drawn from its seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(encoding, setting, data)


def _recorder(data: ImageData) -> HeadRecorder:
    return HeadRecorder(data.validation.taken(slice(_SEEN)).numbers())


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
