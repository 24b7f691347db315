"""The experiment: a CNN goes on as attention and, beside it, as the CNN that it is: same data, schedule and seeds.

    FOLDER/melting.json      says that the folder is a comparison's
    FOLDER/seed-0/start      the CNN's own training, where none was given
    FOLDER/seed-0/cnn        its fine-tuning
    FOLDER/seed-0/attention  its fine-tuning as attention
    FOLDER/seed-1/...

Each is a run of ``fit``; the best epoch of both fine-tunings is chosen on the validation images. The start is its last
epoch: its best one is high on these images by luck as well, and would be what the others are held against. The test
images are looked at once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...convert.arguments import as_integer
from ...convert.errors import OutputError, RunExistsError
from ...convert.files.write import FORMAT
from ...convert.plain import read_json
from ..data.corruptions import corrupted
from ..data.images import ImageData, Split
from ..training.evaluate import accuracy
from ..training.fit import Trained, check_machine, check_run, fit, last_epoch
from ..training.folders import begin_folder
from ..training.recipe import Machine, Recipe
from ..training.records import Record
from .groups import parameter_groups
from .melt import melt
from .record import AttentionRecorder
from .start import small_cnn

START = Recipe(epochs=15, lr=3e-3)
FINE_TUNING = Recipe(epochs=10, lr=1e-4, batch_statistics=False)
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
        chosen: Names of the layers that are melted; None means all.
    """

    tolerance: float | None = None
    alpha: float | None = None
    content: int | None = None
    chosen: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.content is not None:
            as_integer(self.content, "content", least=1)

    def __call__(self, cnn: nn.Module) -> nn.Module:
        """A melted copy of a CNN."""
        chosen = self.chosen
        selected = None if chosen is None else lambda _, name: name in chosen
        return melt(cnn, tolerance=self.tolerance, alpha=self.alpha, content=self.content, filter_fn=selected)


@dataclass(frozen=True)
class SeedResult:
    """What came of one seed.

    Attributes:
        seed: The seed.
        test: Accuracy on test images of each network ("start", "cnn", "attention"), clean and under each corruption.
        validation: Accuracy of the start on validation images, and of each run's best epoch.
        best_epoch: Of each run.
        layers: What was recorded of each attention layer after the best epoch.
    """

    seed: int
    test: dict[str, dict[str, float]]
    validation: dict[str, float]
    best_epoch: dict[str, int]
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
    _check_runs(data, cnn, melting, recipe, machine)  # as above
    _begin(folder, resume=resume)
    if cnn is not None and (warning := chance_warning(cnn, data)) is not None:
        say(warning)
    train = partial(fit, data=data, machine=machine, resume=resume, progress=progress)
    found = []
    tests = {CLEAN: data.test, **corrupted(data.test)}
    for seed in range(recipe.seed, recipe.seed + seeds):
        found.append(_one_seed(data, tests, folder, cnn, melting, replace(recipe, seed=seed), train, say))
    results, networks = zip(*found, strict=True)
    return Comparison(data.name, recipe, melting, tuple(results), networks[0])


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


def _begin(folder: Path, *, resume: bool) -> None:
    """Makes the folder, or sees that a comparison made it."""
    if folder.exists() and not resume:
        raise RunExistsError(f"{folder} exists; it can be resumed if it is what a killed run left")
    if not (folder / MELTING).exists():
        begin_folder(folder / MELTING, _DESCRIBED)
    elif read_json(folder / MELTING) != _DESCRIBED:
        raise OutputError(f"{folder / MELTING} is no file of ours; a comparison is kept in a folder that began as one")


def _one_seed(
    data: ImageData,
    tests: dict[str, Split],
    folder: Path,
    cnn: nn.Module | None,
    melting: Melting,
    recipe: Recipe,
    train: Callable[..., Trained],
    say: Callable[[str], None],
) -> tuple[SeedResult, nn.Module]:
    place = folder / f"seed-{recipe.seed}"
    place.mkdir(exist_ok=True)
    start = cnn
    if start is None:
        say(f"Seed {recipe.seed}: a CNN learns {data.name}")
        train(_new_cnn(data, recipe.seed), recipe=replace(START, seed=recipe.seed), folder=place / "start")
        start = last_epoch(place / "start", _new_cnn(data, recipe.seed))
    groups = partial(parameter_groups, lr=recipe.lr, weight_decay=recipe.weight_decay)
    say(f"Seed {recipe.seed}: the CNN is fine-tuned")
    as_cnn = train(start, recipe=recipe, folder=place / "cnn", groups=groups)
    say(f"Seed {recipe.seed}: its attention is fine-tuned")
    melted, recorder = _melted(melting, start, recipe.seed, data)
    attention = train(melted, recipe=recipe, folder=place / "attention", groups=groups, recorder=recorder)
    runs = {"cnn": as_cnn, "attention": attention}
    result = SeedResult(
        recipe.seed,
        {
            name: {kind: accuracy(network, split) for kind, split in tests.items()}
            for name, network in (("start", start), *((name, run.network) for name, run in runs.items()))
        },
        {"start": accuracy(start, data.validation)}
        | {name: run.records[run.best_epoch]["validation"]["accuracy"] for name, run in runs.items()},
        {name: run.best_epoch for name, run in runs.items()},
        attention.records[attention.best_epoch]["layers"],
    )
    return result, attention.network


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
