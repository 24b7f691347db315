"""Trains one CNN further in several ways, side by side, on the same data and for as many steps, and compares them.

    FOLDER/NAME.json               says that the folder is this comparison's
    FOLDER/seed-0/start            the CNN's own training; more rounds are start-2, start-3, ...; one for all: in common
    FOLDER/seed-0/cnn, ...         how it went on
    FOLDER/rates/cnn-0.003, ...    runs of a seed that no table reports, which choose the rates
    FOLDER/times.json              seconds of a step of each way, measured before all runs

Each is a run of ``fit``, with its scores on test data in scores.json beside it. Its best epoch is chosen on validation
data. The start is its last epoch: its best one is good on these data by luck as well, and would be what the others are
held against. Test data are looked at once, at the end.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ..convert.arguments import as_integer, format_seconds
from ..convert.errors import DivergedError
from ..convert.plain import read_json
from ..convert.write import FORMAT
from .arms import ACCURACY, STAGE, Arm, ArmResult, Comparison, Outcomes
from .data.images import ImageData
from .melting import parameter_groups
from .progress import Expected, Progress
from .timing import first_batch, step_seconds, steps
from .training.fit import RUN, Trained, check_machine, fit, last_epoch, trained_in
from .training.folders import Record, begin_or_resume, write_json
from .training.recipe import ALONE, Recipe, Session, accuracy, cross_entropy, silent
from .training.workers import Workers, workers

RATE_SEED = 100
"""The seed whose runs choose the rates."""
ENOUGH = 0.02
"""A CNN is trained when a round of its training gains less than this, in dB on the validation data."""
TIMES, SCORES = "times.json", "scores.json"
_LEAST_RATE = 1e-7


class _Start(NamedTuple):
    """A CNN after its own training: the epochs, its validation scores, and the gain of each further round."""

    network: nn.Module
    epochs: int = 0
    validation: Record = {}  # noqa: RUF012
    gained: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Runs:
    """Makes the runs of a comparison in its folder.

    Attributes:
        comparison: The comparison.
        session: As for ``fit``.
        seeds: Number of seeds.
        seconds: Seconds of a step of each arm.
        epoch_steps: Steps of an epoch of the fine-tuning.
        progress: Numbers the trainings.
    """

    comparison: Comparison
    session: Session
    seeds: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    epoch_steps: int = 0
    progress: Progress = field(default_factory=lambda: Progress((), silent))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of trainings: of CNNs to start from, to choose rates, and of the ways to go on."""
        rates = len(self.comparison.rates) if len(self.comparison.rates) > 1 else 0
        own = sum(arm.rate_of is None for arm in self.comparison.arms.values())
        starts = 0 if self.comparison.cnn is not None else 1 if self.comparison.one_start else self.seeds + bool(rates)
        return starts, own * rates, self.seeds * len(self.comparison.arms)

    def counted(self, seconds: Mapping[str, float]) -> _Runs:
        """The same with the times of steps, and with the trainings counted, in the order in which they begin."""
        comparison, seeds, starts = self.comparison, self.seeds, self.counts[0]
        data = comparison.data(RATE_SEED)
        start, own = steps(data, comparison.start) * seconds["cnn"], steps(data, comparison.onward)
        epochs = comparison.onward.epochs
        searched = [name for name, arm in comparison.arms.items() if arm.rate_of is None]
        rates = comparison.rates if len(comparison.rates) > 1 else ()
        longer = {name: _ratio(seconds, name, arm.as_long_as) for name, arm in comparison.arms.items()}
        expected = [
            *[Expected(start, comparison.start.epochs)] * starts,
            *(Expected(own * seconds[name], epochs) for name in searched for _ in rates),
            *(
                Expected(own * seconds[name] * longer[name], round(epochs * longer[name]))
                for _ in range(seeds)
                for name in comparison.arms
            ),
        ]
        made = Progress(expected, self.session.say)
        return replace(self, seconds=seconds, epoch_steps=own // epochs, progress=made)

    def plan(self) -> str:
        """How many trainings there will be, and how long their steps take."""
        starts, rates, onward = self.counts
        parts = {"of the CNN": starts, "to choose learning rates": rates, "to compare": onward}
        counts = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
        added = self._most_added()
        more = f"; a best rate at an end of the list adds up to {added}" if added else ""
        clock = "" if self.session.machine.device.type == "cuda" else " of processor time"
        alone = f"Their steps alone take {format_seconds(self.progress.expected)}{clock}"
        left = "; from the second training on, each line says how much time is left" * (self.session.jobs == 1)
        total = f"{self.progress.total} to {self.progress.total + added}" if added else f"{self.progress.total}"
        return f"{total} trainings: {counts}{more}. {alone}{left}"

    def _most_added(self) -> int:
        """The most trainings that rates beyond the ends of the list can add."""
        comparison, most = self.comparison, 0
        if not comparison.follows_ends or len(comparison.rates) < 2:
            return 0
        for end in (min, max):  # each new rate at this end is the best one
            rates = list(comparison.rates)
            while added := beyond({rate: (float(rate == end(rates)), 0.0) for rate in rates}):
                rates += added
            most = max(most, len(rates) - len(comparison.rates))
        return most * sum(arm.rate_of is None for arm in comparison.arms.values())

    def train(self, network: nn.Module, recipe: Recipe, folder: Path, *, stage: int) -> Trained:
        comparison = self.comparison
        return fit(
            network,
            comparison.data(recipe.seed + STAGE * stage),
            recipe,
            folder,
            loss=comparison.loss,
            groups=partial(parameter_groups, lr=recipe.lr, weight_decay=recipe.weight_decay),
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
            which = max(1, seed - self.comparison.onward.seed + 1) if seed != RATE_SEED else self.counts[0]
            title = f"a CNN learns {self.comparison.what}, seed {seed}{more}"
            folder = place / ("start" if number == 1 else f"start-{number}")
            stage = 0 if number == 1 else number
            with self.progress.training(which, title, resumed=(folder / RUN).exists()):
                trained = self.train(network, replace(self.comparison.start, seed=seed), folder, stage=stage)
            network = last_epoch(folder, copy.deepcopy(network))
            scores.append(trained.records[-1]["validation"])
            gained = tuple(10 * math.log10(before["loss"] / after["loss"]) for before, after in pairwise(scores))
            if gained and gained[-1] < ENOUGH:
                break
        return _Start(network, len(scores) * self.comparison.start.epochs, scores[-1], gained)

    def scored(self, network: nn.Module, seed: int) -> dict[str, float]:
        return self.comparison.score(copy.deepcopy(network).to(self.session.machine.device), seed)

    def start_result(self, start: _Start, seed: int) -> ArmResult:
        count, lr = _parameters(start.network), self.comparison.start.lr
        scores = self.scored(start.network, seed)
        return ArmResult(scores, start.validation, lr, start.epochs, count, gained=start.gained)

    def built(self, arm: Arm, cnn: nn.Module, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return arm.build(copy.deepcopy(cnn))

    def onward(self, arm: Arm, cnn: nn.Module, seed: int, folder: Path, *, longer: float = 1.0) -> Trained:
        network = self.built(arm, cnn, seed)
        recipe = self.comparison.onward
        epochs = max(1, round(longer * recipe.epochs))
        return self.train(network, replace(recipe, seed=seed, lr=arm.lr, epochs=epochs), folder, stage=1)

    def result(self, arm: Arm, cnn: nn.Module, seed: int, folder: Path, *, longer: float, place: int) -> ArmResult:
        """An arm's run, and its scores before and after, which are kept beside it."""
        title = f"{arm.title}, seed {seed}, learning rate {arm.lr:g}"
        with self.progress.training(place, title, resumed=(folder / RUN).exists()):
            trained = self.onward(arm, cnn, seed, folder, longer=longer)
        file = folder / SCORES
        if not file.exists():
            begun = self.scored(self.built(arm, cnn, seed), seed)
            write_json(file, {"begun": begun, "scores": self.scored(trained.network, seed)})
        found: Any = read_json(file)
        best, count = trained.records[trained.best_epoch], _parameters(trained.network)
        epochs = len(trained.records) - 1  # the first is of the network before training
        return ArmResult(
            found["scores"],
            best["validation"],
            arm.lr,
            trained.best_epoch,
            count,
            epochs,
            epochs * self.epoch_steps,
            trained.best_epoch == epochs and _goodness(best) > _goodness(trained.records[0]),
            begun=found["begun"],
        )

    def rate_score(self, arm: Arm, cnn: nn.Module, folder: Path, *, place: int) -> tuple[float, float]:
        """How good an arm's rate is on the validation data: accuracy, then minus the loss; the worst if it diverges."""
        title = f"{arm.title}, to choose its learning rate: {arm.lr:g}"
        try:
            with self.progress.training(place, title, resumed=(folder / RUN).exists()):
                run = self.onward(arm, cnn, RATE_SEED, folder)
        except DivergedError:
            return 0.0, -math.inf
        return _goodness(run.records[run.best_epoch])

    def with_rates(self, made: Workers, folder: Path, cnn: nn.Module) -> dict[str, Arm]:
        """The arms with the rates whose runs are best on the validation data."""
        folder.mkdir(exist_ok=True)
        arms = self.comparison.arms
        scores: dict[str, dict[float, tuple[float, float]]] = {n: {} for n, arm in arms.items() if arm.rate_of is None}
        left = [(name, lr) for name in scores for lr in self.comparison.rates]
        place = self.counts[0]
        while left:
            tried = [replace(arms[name], lr=lr) for name, lr in left]
            folders = [folder / f"{name}-{lr:g}" for name, lr in left]
            jobs = [
                partial(self.rate_score, arm, cnn, own, place=number)
                for number, (arm, own) in enumerate(zip(tried, folders, strict=True), place + 1)
            ]
            place += len(left)
            for (name, lr), score in zip(left, made(jobs), strict=True):
                scores[name][lr] = score
            follows = self.comparison.follows_ends
            left = [(name, lr) for name, found in scores.items() for lr in beyond(found)] if follows else []
            epochs = self.comparison.onward.epochs
            own = {name: epochs * self.epoch_steps * self.seconds[name] for name, _ in left}
            self.progress.insert(place, [Expected(own[name], epochs) for name, _ in left])
        best = {name: max(found, key=found.__getitem__) for name, found in scores.items()}
        return {name: replace(arm, lr=best[arm.rate_of or name]) for name, arm in arms.items()}

    def timed(self, file: Path) -> dict[str, float]:
        """Seconds of a step of each arm before training; measured once a folder, so that a resumed run has the same."""
        if not file.exists():
            comparison = self.comparison
            self.session.say("Timing a step of each network")
            cnn = comparison.cnn or self.new(RATE_SEED)
            networks = {name: self.built(arm, cnn, RATE_SEED) for name, arm in comparison.arms.items()}
            data, loss = comparison.data(RATE_SEED), comparison.loss or cross_entropy
            inputs, target = first_batch(data, comparison.onward)
            write_json(file, step_seconds(networks, inputs, target, loss=loss, device=self.session.machine.device))
        found: Any = read_json(file)
        return dict(found)

    def new(self, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.comparison.new()


def _goodness(record: Record) -> tuple[float, float]:
    """How good a network is on the validation data, by an epoch's record: its accuracy, if any, then minus its loss."""
    found = record["validation"]
    return found.get("accuracy", 0.0), -found["loss"]


def beyond(scores: Mapping[float, tuple[float, float]]) -> list[float]:
    """The next rate beyond an end that is best so far; none where the best lies within, or no rate is sensible."""
    rates, best = sorted(scores), max(scores, key=scores.__getitem__)
    if len(rates) < 2 or rates[0] < best < rates[-1]:
        return []
    further = best * rates[0] / rates[1] if best == rates[0] else best * rates[-1] / rates[-2]
    return [float(f"{further:.3g}")] if _LEAST_RATE < further < 1 else []


def run_comparison(comparison: Comparison, folder: Path, *, seeds: int = 5, session: Session = ALONE) -> Outcomes:
    """Trains a CNN for each seed, where none is given, and trains it further in every way.

    Of several rates, each arm gets the one whose run of ``RATE_SEED`` is best on validation data.

    Args:
        comparison: The comparison.
        folder: Where runs are kept; its parent must exist.
        seeds: Number of seeds; with 0 only steps are timed.
        session: As for ``fit``.

    Raises:
        RunExistsError: The folder exists, and is not to be resumed.
        OutputError: The folder holds something else, or cannot be made.
        ConversionError: As ``fit``.
    """
    as_integer(seeds, "seeds", least=0)
    check_machine(session.machine)
    # Begin the folder, or go on in it; from here on it counts as begun.
    described = {"format": FORMAT, "content": comparison.name}
    begin_or_resume(folder / f"{comparison.name}.json", described, resume=session.resume, what="comparison")
    session = replace(session, resume=True, progress=session.progress and session.jobs == 1)
    # Time a step of each network, from which the trainings are counted and the time left is estimated.
    runs = _Runs(comparison, session, seeds)
    seconds = runs.timed(folder / TIMES)
    if not seeds:
        return Outcomes({}, {}, seconds)
    runs = runs.counted(seconds)
    session.say(runs.plan())
    # Train the CNNs, choose the rates, and train each further in every way.
    first, chooses = comparison.onward.seed, len(comparison.rates) > 1
    places = {seed: folder / f"seed-{seed}" for seed in range(first, first + seeds)}
    for place in places.values():
        place.mkdir(exist_ok=True)
    with workers(session.jobs) as made:
        starts = _starts(runs, made, folder, places, rates=chooses)
        arms = runs.with_rates(made, folder / "rates", starts[RATE_SEED].network) if chooses else comparison.arms
        results = _results(runs, made, arms, starts, places)
    networks = {
        name: trained_in(places[first] / name, runs.built(arm, starts[first].network, first)).network
        for name, arm in arms.items()
    }
    return Outcomes(results, {"start": starts[first].network, **networks}, seconds)


def _starts(runs: _Runs, made: Workers, folder: Path, places: Mapping[int, Path], *, rates: bool) -> dict[int, _Start]:
    wanted = dict(places) | ({RATE_SEED: folder / "rates"} if rates else {})
    if runs.comparison.one_start:
        common: _Start = made([partial(runs.start, folder / "common", RATE_SEED)])[0]
        return dict.fromkeys(wanted, common)
    found = made([partial(runs.start, place, seed) for seed, place in wanted.items()])
    return dict(zip(wanted, found, strict=True))


def _results(
    runs: _Runs, made: Workers, arms: Mapping[str, Arm], starts: Mapping[int, _Start], places: Mapping[int, Path]
) -> dict[int, dict[str, ArmResult]]:
    longer = {name: _ratio(runs.seconds, name, arm.as_long_as) for name, arm in arms.items()}
    begun = made([partial(runs.start_result, starts[seed], seed) for seed in places])
    results = {seed: {"start": found} for seed, found in zip(places, begun, strict=True)}
    pairs = [(seed, name) for seed in places for name in arms]
    before = runs.progress.total - runs.counts[2]
    jobs = [
        partial(
            runs.result, arms[name], starts[seed].network, seed, places[seed] / name, longer=longer[name], place=place
        )
        for place, (seed, name) in enumerate(pairs, before + 1)
    ]
    for (seed, name), found in zip(pairs, made(jobs), strict=True):
        results[seed][name] = found
    return results


def _ratio(seconds: Mapping[str, float], arm: str, other: str | None) -> float:
    """How many more steps an arm makes in the time of the other's, at least as many."""
    return 1.0 if other is None else max(1.0, seconds[other] / seconds[arm])


def _parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def same_data(_: int, *, data: ImageData) -> ImageData:
    """Data that are the same for all seeds."""
    return data


def accuracy_on_test(network: nn.Module, _: int, *, data: ImageData) -> dict[str, float]:
    """The share of test images whose class has the highest score."""
    return {ACCURACY: accuracy(network, data.test)}


START = Recipe(epochs=15, lr=3e-3)


def small_cnn(*, channels: int = 1, classes: int = 10, halvings: int = 1) -> nn.Module:
    """Four 3 x 3 convolutions with batch normalisation, 16 to 48 channels wide, for images of any size.

    Args:
        channels: Channels of an image.
        classes: How many scores.
        halvings: Number of the layers with stride 2, 1 to 4: the second one, or the first ones.

    Returns:
        A network from images [batch, channels, rows, columns] to scores [batch, classes], untrained.
    """
    widths = (16, 32, 48, 48)
    strides = (1, 2, 1, 1) if halvings == 1 else (*(2,) * halvings, 1, 1)
    layers: list[nn.Module] = []
    for before, width, stride in zip((channels, *widths), widths, strides, strict=False):
        convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


_LAST_MAP = 12 * 12  # pixels at least of the last layers: enough for heads to choose from, and cheap


def small_cnn_for(data: ImageData) -> dict[str, int]:
    """Arguments of ``small_cnn`` for these images: the last layers see 144 to 575 pixels of images up to 383 x 383."""
    pixels = data.size.rows * data.size.columns
    halvings = next((count for count in (1, 2, 3) if pixels < _LAST_MAP * 4 ** (count + 1)), 4)
    return {"channels": data.channels, "classes": len(data.classes), "halvings": halvings}
