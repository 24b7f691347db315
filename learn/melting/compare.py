"""The experiment: a CNN goes on as attention and, beside it, as the CNN that it is: same data, schedule and seeds.

    FOLDER/melting.json      says that the folder is a comparison's
    FOLDER/seed-0/start      the CNN's own training, where none was given
    FOLDER/seed-0/cnn        its fine-tuning
    FOLDER/seed-0/attention  its fine-tuning as attention; with several rates, cnn-0.001 and so on
    FOLDER/seed-1/...

Each is a run of ``fit``; the rate and the epoch of both fine-tunings are chosen on the validation images. The start is
its last epoch: its best one is high on these images by luck as well, and would be what the others are held against. The
test images are looked at once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...convert.arguments import as_integer
from ...convert.errors import OptionError
from ...convert.files.write import FORMAT
from ..data.corruptions import corrupted
from ..data.images import ImageData, Split
from ..training.batches import Order
from ..training.evaluate import accuracy
from ..training.fit import Trained, check_machine, check_run, fit, last_epoch
from ..training.folders import begin_or_resume
from ..training.recipe import Machine, Recipe
from ..training.records import Record
from .groups import POSITION_RATE, parameter_groups
from .melt import melt
from .record import AttentionRecorder
from .start import small_cnn

START = Recipe(epochs=15, lr=3e-3)
FINE_TUNING = Recipe(epochs=10, lr=1e-4, batch_statistics=False)
CONTENT_RATES = 3e-4, 1e-3
"""At smaller ones a gate cannot open within the steps of ``FINE_TUNING``."""
LEAST_OPENING = 0.1
"""What a gate must be able to reach."""
CLEAN = "clean"
MELTING = "melting.json"
_DESCRIBED = {"format": FORMAT, "content": "melting"}
_LOOKED_AT = 4  # images that layers are looked at with
_NEAR = 0.1  # of the way from chance to perfect: below it a trained CNN was most likely given images it does not know


@dataclass(frozen=True)
class Melting:
    """How a CNN is melted.

    Attributes:
        tolerance: As for ``melt``.
        alpha: As for ``melt``.
        content: As for ``melt``.
        last: As for ``melt``.
        chosen: Names of the layers that are melted; None means what ``melt`` does.
    """

    tolerance: float | None = None
    alpha: float | None = None
    content: int | None = None
    last: int | None = None
    chosen: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.content is not None:
            as_integer(self.content, "content", least=1)

    def __call__(self, cnn: nn.Module) -> nn.Module:
        """A melted copy of a CNN."""
        chosen = self.chosen
        selected = None if chosen is None else lambda _, name: name in chosen
        return melt(
            cnn,
            tolerance=self.tolerance,
            alpha=self.alpha,
            content=self.content,
            last=self.last,
            filter_fn=selected,
        )


@dataclass(frozen=True)
class SeedResult:
    """What came of one seed.

    Attributes:
        seed: The seed.
        test: Accuracy on test images of each network ("start", "cnn", "attention"), clean and under each corruption.
        validation: Accuracy of the start on validation images, and of each run's best epoch.
        best_epoch: Of each run.
        lr: The rate of each, of those that were tried.
        layers: What was recorded of each attention layer after the best epoch.
    """

    seed: int
    test: dict[str, dict[str, float]]
    validation: dict[str, float]
    best_epoch: dict[str, int]
    lr: dict[str, float]
    layers: dict[str, Record]


@dataclass(frozen=True)
class Comparison:
    """What came of all seeds.

    Attributes:
        data: The kind of data.
        recipe: How both were fine-tuned.
        melting: How the CNN was melted.
        results: A seed each.
        attention: The first seed's network, with the weights of its best epoch.
    """

    data: str
    recipe: Recipe
    melting: Melting
    results: tuple[SeedResult, ...]
    attention: nn.Module

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data, without the network."""
        return {
            "data": self.data,
            "recipe": self.recipe.to_json(),
            "melting": asdict(self.melting),
            "seeds": [asdict(result) for result in self.results],
        }


def compare(
    data: ImageData,
    folder: Path,
    *,
    cnn: nn.Module | None = None,
    melting: Melting | None = None,
    recipe: Recipe = FINE_TUNING,
    rates: Sequence[float] = (),
    seeds: int = 5,
    machine: Machine | None = None,
    resume: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Melts a CNN and fine-tunes both, for several seeds.

    Args:
        data: The images.
        folder: Where runs are kept; its parent must exist.
        cnn: Where to start from; None trains a small CNN on the data for each seed.
        melting: How the CNN is melted.
        recipe: How both are fine-tuned; its seed is the first.
        rates: Learning rates that both try, each for itself, in place of the recipe's; by default that of the recipe,
            with content ``CONTENT_RATES``.
        seeds: How many.
        machine: As for ``fit``.
        resume: Go on with what a killed run left in the folder.
        progress: As for ``fit``.
        say: Told what begins, and warned where the given CNN is hardly better than chance on these images.

    Raises:
        ConversionError: As ``melt`` and ``fit``.
        RunExistsError: The folder exists, and ``resume`` is not given.
        OutputError: The folder holds something else, or cannot be made.
    """
    machine, melting = machine or Machine(), melting or Melting()
    check_machine(machine)
    replace(recipe, seed=recipe.seed + as_integer(seeds, "seeds", least=1) - 1)  # refused before anything is written
    rates = tuple(rates) or ((recipe.lr,) if melting.content is None else CONTENT_RATES)
    recipes = tuple(replace(recipe, lr=lr) for lr in rates)
    if melting.content is not None:
        say(check_gates(recipes, data))
    _check_runs(data, cnn, melting, recipe, machine)  # as above
    begin_or_resume(folder / MELTING, _DESCRIBED, resume=resume, what="a comparison")
    if cnn is not None and (warning := chance_warning(cnn, data)) is not None:
        say(warning)
    train = partial(fit, data=data, machine=machine, resume=resume, progress=progress)
    found = []
    tests = {CLEAN: data.test, **corrupted(data.test)}
    for seed in range(recipe.seed, recipe.seed + seeds):
        found.append(
            _one_seed(data, tests, folder, cnn, melting, [replace(each, seed=seed) for each in recipes], train, say)
        )
    results, networks = zip(*found, strict=True)
    return Comparison(data.name, recipe, melting, tuple(results), networks[0])


def check_gates(recipes: Sequence[Recipe], data: ImageData) -> str:
    """How far gates can open at most, in words.

    Raises:
        OptionError: At none of the rates as far as ``LEAST_OPENING``: what is trained would stay a convolution.
    """
    recipe = recipes[0]
    steps = recipe.epochs * len(Order(len(data.train.labels), recipe))
    reach = {each.lr: POSITION_RATE * each.travel(steps) for each in recipes}
    told = " and ".join(f"{far:.2g} at rate {lr:g}" for lr, far in reach.items())
    if max(reach.values()) < LEAST_OPENING:
        needed = max(reach) * LEAST_OPENING / max(reach.values())
        raise OptionError(
            f"gates start closed and can move by about {told} in {steps} steps, so content would not be seen; take "
            f"more epochs, or a learning rate of {needed:.1g} or more"
        )
    return f"Gates start closed; in {steps} steps they can move by about {told}"


def chance_warning(cnn: nn.Module, data: ImageData) -> str | None:
    """A warning for a trained CNN that is hardly better than chance on the validation images, or None."""
    right = accuracy(cnn, data.validation)
    chance = float(data.validation.labels.bincount().max()) / len(data.validation.labels)
    if right >= chance + _NEAR * (1 - chance):
        return None
    return (
        f"Warning: before training, the CNN is right on {right:.1%} of the validation images, near chance "
        f"({chance:.1%}); check that mean, std, size and the order of the classes are those it was trained with"
    )


def _check_runs(data: ImageData, cnn: nn.Module | None, melting: Melting, recipe: Recipe, machine: Machine) -> None:
    """Refuses what would be refused of a seed's runs, of which the last begins when the others are over."""
    start = cnn
    if start is None:
        start = _new_cnn(data, recipe.seed)
        check_run(start, data, START, machine=machine)
    check_run(start, data, recipe, machine=machine)
    melted, recorder = _melted(melting, start, recipe.seed, data)
    check_run(melted, data, recipe, recorder=recorder, machine=machine)


def _one_seed(
    data: ImageData,
    tests: dict[str, Split],
    folder: Path,
    cnn: nn.Module | None,
    melting: Melting,
    recipes: Sequence[Recipe],
    train: Callable[..., Trained],
    say: Callable[[str], None],
) -> tuple[SeedResult, nn.Module]:
    seed = recipes[0].seed
    place = folder / f"seed-{seed}"
    place.mkdir(exist_ok=True)
    start = cnn
    if start is None:
        say(f"Seed {seed}: a CNN learns {data.name}")
        train(_new_cnn(data, seed), recipe=replace(START, seed=seed), folder=place / "start")
        start = last_epoch(place / "start", _new_cnn(data, seed))
    say(f"Seed {seed}: the CNN is fine-tuned")
    runs = {"cnn": _best(start, place / "cnn", recipes, train)}
    say(f"Seed {seed}: its attention is fine-tuned")
    melted, recorder = _melted(melting, start, seed, data)
    runs["attention"] = _best(melted, place / "attention", recipes, partial(train, recorder=recorder))
    networks = {"start": start, **{name: run.network for name, (run, _) in runs.items()}}
    attention, _ = runs["attention"]
    result = SeedResult(
        seed,
        {name: {kind: accuracy(network, split) for kind, split in tests.items()} for name, network in networks.items()},
        {"start": accuracy(start, data.validation)} | {name: _validation(run)[0] for name, (run, _) in runs.items()},
        {name: run.best_epoch for name, (run, _) in runs.items()},
        {name: lr for name, (_, lr) in runs.items()},
        attention.records[attention.best_epoch]["layers"],
    )
    return result, attention.network


def _best(
    network: nn.Module, folder: Path, recipes: Sequence[Recipe], train: Callable[..., Trained]
) -> tuple[Trained, float]:
    """The run of the rate that the validation images choose, and the rate."""
    runs = []
    for recipe in recipes:
        place = folder if len(recipes) == 1 else folder.with_name(f"{folder.name}-{recipe.lr:g}")
        groups = partial(parameter_groups, lr=recipe.lr, weight_decay=recipe.weight_decay)
        runs.append((train(network, recipe=recipe, folder=place, groups=groups), recipe.lr))
    return max(runs, key=lambda run: _validation(run[0]))


def _validation(run: Trained) -> tuple[float, float]:
    """How good the best epoch is on the validation images: accuracy, and of equal ones the lower loss."""
    found = run.records[run.best_epoch]["validation"]
    return found["accuracy"], -found["loss"]


def _melted(melting: Melting, cnn: nn.Module, seed: int, data: ImageData) -> tuple[nn.Module, AttentionRecorder]:
    """A melted copy of a CNN, whose content terms are drawn from the seed, and what records it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        melted = melting(cnn)
    return melted, AttentionRecorder.of(melted, data.validation.taken(slice(_LOOKED_AT)).numbers())


def _new_cnn(data: ImageData, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return small_cnn(channels=data.channels, classes=len(data.classes))
