"""Runs a comparison: one trained CNN is trained further in several ways, on the same data and for as many steps.

    FOLDER/NAME.json               says that the folder is this comparison's
    FOLDER/seed-0/start            the CNN's own training; more rounds are start-2, start-3, ...; one for all: in common
    FOLDER/seed-0/cnn, ...         how it went on
    FOLDER/rates/cnn-0.003, ...    runs of a seed that no table reports, which choose the rates

Each is a run of ``fit``, whose best epoch is chosen on validation data. The start is its last epoch: its best one is
good on these data by luck as well, and would be what the others are held against. Test data are looked at once, at the
end.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from ...convert.arguments import as_integer
from ...convert.files.write import FORMAT
from ..data.images import Loaders
from ..training.fit import Trained, check_machine, fit, last_epoch
from ..training.folders import Record, begin_or_resume, nothing_more
from ..training.recipe import ALONE, Recipe, Session
from .comparison import Arm, ArmResult, Comparison, Outcomes
from .groups import parameter_groups
from .record import AttentionRecorder

RATE_SEED = 100
"""Whose runs choose the rates."""
ENOUGH = 0.02
"""A CNN is trained when a round of its training gains less than this, in dB on the validation data."""
_STEPS_TIMED = 9


class _Start(NamedTuple):
    """A CNN after its own training, the epochs, its validation score, and what each further round gained."""

    network: nn.Module
    epochs: int = 0
    validation: Record = {}  # noqa: RUF012
    gained: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Runs:
    """Makes the runs of a comparison in its folder."""

    comparison: Comparison
    session: Session

    def train(self, network: nn.Module, recipe: Recipe, folder: Path, *, stage: int) -> Trained:
        """One run; every stage of a seed has other data, where these are drawn."""
        comparison = self.comparison
        watched = comparison.watched if stage == 1 and recipe.seed != RATE_SEED else None
        return fit(
            network,
            comparison.data(recipe.seed + 1000 * stage),
            recipe,
            folder,
            loss=comparison.loss,
            groups=partial(parameter_groups, lr=recipe.lr, weight_decay=recipe.weight_decay),
            recorder=nothing_more if watched is None else AttentionRecorder.of(network, watched),
            session=self.session,
        )

    def start(self, place: Path, seed: int) -> _Start:
        """The CNN after its own training's last epoch."""
        if self.comparison.cnn is not None:
            return _Start(self.comparison.cnn)
        place.mkdir(exist_ok=True)
        network, scores = self.new(seed), list[Record]()
        gained: tuple[float, ...] = ()
        for number in range(1, self.comparison.rounds + 1):
            more = "" if self.comparison.rounds == 1 else f", round {number}"
            self.session.say(f"Seed {seed}: a CNN learns {self.comparison.what}{more}")
            folder = place / ("start" if number == 1 else f"start-{number}")
            stage = 0 if number == 1 else number
            trained = self.train(network, replace(self.comparison.start, seed=seed), folder, stage=stage)
            network = last_epoch(folder, copy.deepcopy(network))
            scores.append(trained.records[-1]["validation"])
            gained = tuple(10 * math.log10(before["loss"] / after["loss"]) for before, after in pairwise(scores))
            if gained and gained[-1] < ENOUGH:
                break
        return _Start(network, len(scores) * self.comparison.start.epochs, scores[-1], gained)

    def onward(self, arm: Arm, cnn: nn.Module, seed: int, folder: Path) -> Trained:
        """An arm's run."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = arm.build(copy.deepcopy(cnn))
        recipe = self.comparison.onward
        epochs = max(1, round(arm.longer * recipe.epochs))
        return self.train(network, replace(recipe, seed=seed, lr=arm.lr, epochs=epochs), folder, stage=1)

    def with_rates(self, arms: Mapping[str, Arm], folder: Path, common: _Start | None) -> dict[str, Arm]:
        """The arms with the rates whose runs are best on the validation data."""
        folder.mkdir(exist_ok=True)
        cnn = (common or self.start(folder, RATE_SEED)).network
        chosen: dict[str, Arm] = {}
        for name, arm in arms.items():
            if arm.rate_of is not None:
                chosen[name] = replace(arm, lr=chosen[arm.rate_of].lr)
                continue
            scores = {}
            for lr in self.comparison.rates:
                self.session.say(f"Rates: {arm.title}, at {lr:g}")
                run = self.onward(replace(arm, lr=lr), cnn, RATE_SEED, folder / f"{name}-{lr:g}")
                found = run.records[run.best_epoch]["validation"]
                scores[lr] = found.get("accuracy", 0.0), -found["loss"]
            chosen[name] = replace(arm, lr=max(scores, key=scores.__getitem__))
        return chosen

    def new(self, seed: int) -> nn.Module:
        """An untrained CNN."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.comparison.new()


def run_comparison(
    comparison: Comparison,
    folder: Path,
    *,
    full: bool = False,
    seeds: int = 5,
    session: Session = ALONE,
) -> Outcomes:
    """Trains a CNN for each seed, where none is given, and trains it further in every way.

    Args:
        comparison: The comparison.
        folder: Where runs are kept; its parent must exist.
        full: Every control, and each arm's rate chosen by runs of ``RATE_SEED``, on validation data.
        seeds: Number of seeds.
        session: As for ``fit``.

    Raises:
        RunExistsError: The folder exists, and is not to be resumed.
        OutputError: The folder holds something else, or cannot be made.
        ConversionError: As ``fit``.
    """
    as_integer(seeds, "seeds", least=1)
    check_machine(session.machine)
    runs = _Runs(comparison, session)
    described = {"format": FORMAT, "content": comparison.name}
    begin_or_resume(folder / f"{comparison.name}.json", described, resume=session.resume, what="comparison")
    common = runs.start(folder / "common", RATE_SEED) if comparison.one_start else None
    arms = comparison.arms
    if full:
        arms = runs.with_rates({**arms, **comparison.controls}, folder / "rates", common)
    results: dict[int, dict[str, ArmResult]] = {}
    networks: dict[str, nn.Module] = {}
    first = comparison.onward.seed
    for seed in range(first, first + seeds):
        place = folder / f"seed-{seed}"
        place.mkdir(exist_ok=True)
        begun = common or runs.start(place, seed)
        networks = networks or {"start": begun.network}
        lr, count = comparison.start.lr, _parameters(begun.network)
        found = ArmResult(comparison.score(begun.network), begun.validation, lr, begun.epochs, count, begun.gained)
        results[seed] = {"start": found}
        for name, arm in arms.items():
            session.say(f"Seed {seed}: trained further {arm.title}")
            trained = runs.onward(arm, begun.network, seed, place / name)
            best, count = trained.records[trained.best_epoch], _parameters(trained.network)
            scores, layers = comparison.score(trained.network), best.get("layers", {})
            made = ArmResult(scores, best["validation"], arm.lr, trained.best_epoch, count, layers=layers)
            results[seed][name] = made
            if seed == first:
                networks[name] = trained.network
    return Outcomes(results, networks, _step_seconds(comparison, networks))


def _parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _step_seconds(comparison: Comparison, networks: Mapping[str, nn.Module]) -> dict[str, float]:
    """Forward and backward on a batch, in training mode; the networks take turns, so that all see the same load."""
    data = comparison.data(0)
    if not isinstance(data, Loaders):
        return {}
    inputs, target = next(iter(data.train))
    loss = comparison.loss or F.mse_loss
    copies = {name: copy.deepcopy(network).train() for name, network in networks.items()}
    taken = {name: list[float]() for name in networks}
    for _ in range(_STEPS_TIMED):
        for name, network in copies.items():
            began = time.process_time()
            loss(network(inputs), target).backward()
            taken[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}
