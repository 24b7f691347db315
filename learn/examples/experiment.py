"""The experiment: one trained denoiser goes on in several ways, on the same images and for as many steps.

    FOLDER/stamps.json             says that the folder is this example's
    FOLDER/seed-0/start            the CNN's own training; more rounds are start-2, start-3, ...; one for all: in common
    FOLDER/seed-0/cnn, content     how it went on
    FOLDER/rates/cnn-0.003, ...    with ``sweep``: runs of a seed that no table reports, which choose the rates

Each is a run of ``fit``, whose best epoch is chosen on validation images; test images are looked at once, at the end.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from ...convert.arguments import as_integer
from ...convert.files.write import FORMAT
from ..data.loaders import Pairs
from ..melting.groups import parameter_groups
from ..training.fit import Trained, check_machine, fit, last_epoch
from ..training.folders import begin_or_resume
from ..training.recipe import Machine, Recipe
from .batches import drawn_loaders
from .example import Arm, ArmResult, Example, Outcomes

RATE_SEED = 100
"""Whose runs choose the rates."""
ENOUGH = 0.02
"""The CNN is trained when a round of its training gains less than this, in dB on the validation images."""
_STEPS_TIMED = 9


class _Start(NamedTuple):
    """A denoiser after its own training, the epochs, and what each further round gained."""

    network: nn.Module
    epochs: int
    gained: tuple[float, ...]


@dataclass(frozen=True)
class _Runs:
    """Makes the runs of an example in its folder."""

    example: Example
    machine: Machine
    resume: bool
    progress: bool
    say: Callable[[str], None]
    validation: Pairs = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "validation", list(self.example.validation()))

    def train(self, network: nn.Module, recipe: Recipe, folder: Path, *, stage: int) -> Trained:
        """One run; every stage of a seed has other batches."""
        example = self.example
        data = drawn_loaders(
            example.name,
            example.draw,
            self.validation,
            seed=recipe.seed + 1000 * stage,
            steps=example.steps,
            batch=example.batch,
        )
        groups = partial(parameter_groups, lr=recipe.lr, weight_decay=recipe.weight_decay)
        return fit(
            network,
            data,
            recipe,
            folder,
            loss=F.mse_loss,
            groups=groups,
            machine=self.machine,
            resume=self.resume,
            progress=self.progress,
        )

    def start(self, place: Path, seed: int) -> _Start:
        """The denoiser after its own training's last epoch."""
        place.mkdir(exist_ok=True)
        network, losses = self.new(seed), list[float]()
        for number in range(1, self.example.rounds + 1):
            self.say(f"Seed {seed}: a CNN learns to clean {self.example.name}, round {number}")
            folder = place / ("start" if number == 1 else f"start-{number}")
            stage = 0 if number == 1 else number
            trained = self.train(network, replace(self.example.start, seed=seed), folder, stage=stage)
            network = last_epoch(folder, copy.deepcopy(network))
            losses.append(trained.records[-1]["validation"]["loss"])
            gained = tuple(10 * math.log10(before / after) for before, after in pairwise(losses))
            if gained and gained[-1] < ENOUGH:
                break
        return _Start(network, len(losses) * self.example.start.epochs, gained)

    def onward(self, arm: Arm, cnn: nn.Module, seed: int, folder: Path) -> Trained:
        """An arm's run."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = arm.build(self.new(seed) if arm.scratch else copy.deepcopy(cnn))
        recipe = self.example.onward
        epochs = max(1, round(arm.longer * recipe.epochs))
        return self.train(network, replace(recipe, seed=seed, lr=arm.lr, epochs=epochs), folder, stage=1)

    def with_rates(self, arms: dict[str, Arm], folder: Path, common: _Start | None) -> dict[str, Arm]:
        """The arms with the rates whose runs clean the validation images best."""
        folder.mkdir(exist_ok=True)
        cnn = (common or self.start(folder, RATE_SEED)).network
        chosen: dict[str, Arm] = {}
        for name, arm in arms.items():
            if arm.rate_of is not None:
                chosen[name] = replace(arm, lr=chosen[arm.rate_of].lr)
                continue
            losses = {}
            for lr in self.example.rates:
                self.say(f"Rates: {arm.title}, at {lr:g}")
                run = self.onward(replace(arm, lr=lr), cnn, RATE_SEED, folder / f"{name}-{lr:g}")
                losses[lr] = run.records[run.best_epoch]["validation"]["loss"]
            chosen[name] = replace(arm, lr=min(losses, key=losses.__getitem__))
        return chosen

    def new(self, seed: int) -> nn.Module:
        """An untrained denoiser."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.example.new()


def run_example(
    example: Example,
    folder: Path,
    *,
    full: bool = False,
    seeds: int = 5,
    machine: Machine | None = None,
    resume: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Outcomes:
    """Trains a denoiser for each seed and lets it go on in every way.

    Args:
        example: What is cleaned.
        folder: Where runs are kept; its parent must exist.
        full: Every control, and each arm's rate chosen by runs of ``RATE_SEED``, on validation images.
        seeds: How many.
        machine: As for ``fit``.
        resume: Go on with what a killed run left in the folder.
        progress: As for ``fit``.
        say: Told what begins.

    Raises:
        RunExistsError: The folder exists, and ``resume`` is not given.
        OutputError: The folder holds something else, or cannot be made.
        ConversionError: As ``fit``.
    """
    machine = machine or Machine()
    as_integer(seeds, "seeds", least=1)
    check_machine(machine)
    runs = _Runs(example, machine, resume, progress, say)
    described = {"format": FORMAT, "content": example.name}
    begin_or_resume(folder / f"{example.name}.json", described, resume=resume, what="the experiment")
    common = runs.start(folder / "common", RATE_SEED) if example.one_start else None
    arms = example.arms
    if full:
        arms = runs.with_rates(example.arms | example.controls, folder / "rates", common)
    results: dict[int, dict[str, ArmResult]] = {}
    networks: dict[str, nn.Module] = {}
    for seed in range(seeds):
        place = folder / f"seed-{seed}"
        place.mkdir(exist_ok=True)
        begun = common or runs.start(place, seed)
        networks = networks or {"start": begun.network}
        results[seed] = {"start": _result(example, begun.network, example.start.lr, begun.epochs, begun.gained)}
        for name, arm in arms.items():
            say(f"Seed {seed}: it goes on {arm.title}")
            trained = runs.onward(arm, begun.network, seed, place / name)
            results[seed][name] = _result(example, trained.network, arm.lr, trained.best_epoch)
            if seed == 0:
                networks[name] = trained.network
    return Outcomes(results, networks, _step_seconds(example, networks))


def _result(example: Example, network: nn.Module, lr: float, epoch: int, gained: tuple[float, ...] = ()) -> ArmResult:
    count = sum(parameter.numel() for parameter in network.parameters())
    return ArmResult(example.score(network), lr, epoch, count, gained)


def _step_seconds(example: Example, networks: dict[str, nn.Module]) -> dict[str, float]:
    """Forward and backward on a batch, in training mode; the networks take turns, so that all see the same load."""
    noisy, clean = example.draw(example.batch, torch.Generator().manual_seed(0))
    copies = {name: copy.deepcopy(network).train() for name, network in networks.items()}
    taken = {name: list[float]() for name in networks}
    for _ in range(_STEPS_TIMED):
        for name, network in copies.items():
            began = time.process_time()
            F.mse_loss(network(noisy), clean).backward()
            taken[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}
