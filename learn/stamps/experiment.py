"""The experiment: one trained denoiser goes on in several ways, on the same pages and for as many steps.

    FOLDER/stamps.json             says that the folder is this experiment's
    FOLDER/seed-0/start            the CNN's own training
    FOLDER/seed-0/cnn, content     how it went on
    FOLDER/rates/cnn-0.003, ...    with ``full``: runs of a seed that no table reports, which choose the rates

Each is a run of ``fit``, whose best epoch is chosen on validation pages; test pages are looked at once, at the end.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...convert.arguments import as_integer
from ...convert.files.write import FORMAT
from ..melting.groups import parameter_groups
from ..training.evaluate import evaluate
from ..training.fit import Trained, check_machine, fit, last_epoch
from ..training.folders import begin_or_resume
from ..training.recipe import Machine, Recipe
from .arms import ARMS, ONWARD, START, Arm
from .denoiser import Denoiser
from .pages import COLUMNS, KINDS, ROWS, page_loaders, unseen_pages

STEPS = 100
"""Batches of an epoch."""
RATES = 1e-3, 2e-3, 3e-3, 5e-3
RATE_SEED = 100
"""Whose runs choose the rates."""
RECURRING = 1, 2, 3, 4, 6, 12
"""Different stamps of a page of twelve: each recurs as often as the others."""
MARK = "stamps.json"
_DESCRIBED = {"format": FORMAT, "content": "stamps"}
_PEAK = 2.0  # from black to white
_BATCH, _STEPS_TIMED = 32, 9


@dataclass(frozen=True)
class ArmResult:
    """What came of an arm for one seed.

    Attributes:
        psnr: Peak signal-to-noise ratio on test pages in dB, by the number of different stamps of a page.
        lr: The learning rate.
        best_epoch: The epoch that the validation pages chose.
        parameters: Numbers that are trained.
    """

    psnr: dict[int, float]
    lr: float
    best_epoch: int
    parameters: int


@dataclass(frozen=True)
class Stamps:
    """What came of all seeds.

    Attributes:
        results: For each seed, what came of each arm and of the CNN at the start.
        networks: The first seed's networks, by arm, with the CNN at the start.
        seconds: Of the processor, for a step of each of these; medians of steps in turn.
    """

    results: dict[int, dict[str, ArmResult]]
    networks: dict[str, nn.Module]
    seconds: dict[str, float]


def psnr(network: nn.Module, pairs: tuple[Tensor, Tensor]) -> float:
    """Peak signal-to-noise ratio of cleaned pages, in dB.

    Args:
        network: Cleans pages.
        pairs: Noisy pages and clean ones.
    """
    noisy, clean = pairs
    batches = list(zip(noisy.split(100), clean.split(100), strict=True))
    return 10 * math.log10(_PEAK**2 / evaluate(network, batches, F.mse_loss).loss)


def run_stamps(
    folder: Path,
    *,
    arms: dict[str, Arm] | None = None,
    seeds: int = 5,
    sweep: bool = False,
    start: Recipe = START,
    onward: Recipe = ONWARD,
    steps: int = STEPS,
    test: int = 400,
    machine: Machine | None = None,
    resume: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Stamps:
    """Trains a denoiser for each seed and lets it go on in every way.

    Args:
        folder: Where runs are kept; its parent must exist.
        arms: The ways; by default ``ARMS``, the CNN and content.
        seeds: How many.
        sweep: Choose each arm's rate among ``RATES`` by runs of ``RATE_SEED``, on validation pages.
        start: How the denoiser is trained.
        onward: How it goes on; an arm has its own rate and epochs.
        steps: Batches of an epoch.
        test: Test pages of each kind.
        machine: As for ``fit``.
        resume: Go on with what a killed run left in the folder.
        progress: As for ``fit``.
        say: Told what begins.

    Raises:
        RunExistsError: The folder exists, and ``resume`` is not given.
        OutputError: The folder holds something else, or cannot be made.
        ConversionError: As ``fit``.
    """
    arms, machine = arms or ARMS, machine or Machine()
    as_integer(seeds, "seeds", least=1)
    check_machine(machine)
    begin_or_resume(folder / MARK, _DESCRIBED, resume=resume, what="the experiment")
    train = partial(fit, loss=F.mse_loss, machine=machine, resume=resume, progress=progress)
    if sweep:
        arms = _with_rates(arms, folder / "rates", start, onward, steps, train, say)
    tests = {kinds: unseen_pages(test, kinds=kinds) for kinds in RECURRING}
    results: dict[int, dict[str, ArmResult]] = {}
    networks: dict[str, nn.Module] = {}
    for seed in range(seeds):
        place = folder / f"seed-{seed}"
        place.mkdir(exist_ok=True)
        say(f"Seed {seed}: a CNN learns to clean pages")
        begun, cnn = _started(place, seed, start, steps, train)
        found = {"start": _result(begun, cnn, start.lr, tests)}
        for name, arm in arms.items():
            say(f"Seed {seed}: it goes on {arm.title}")
            trained = _goes_on(arm, cnn, seed, place / name, onward, steps, train)
            found[name] = _result(trained, trained.network, arm.lr, tests)
            if seed == 0:
                networks |= {"start": cnn, name: trained.network}
        results[seed] = found
    return Stamps(results, networks, _step_seconds(networks))


def gains(stamps: Stamps, arm: str, *, kinds: int = KINDS) -> list[float]:
    """PSNR of an arm minus that of the CNN that went on, in dB, for each seed."""
    return [found[arm].psnr[kinds] - found["cnn"].psnr[kinds] for found in stamps.results.values()]


def copies(kinds: int) -> int:
    """How often each stamp is on a page."""
    return ROWS * COLUMNS // kinds


def _started(
    place: Path, seed: int, recipe: Recipe, steps: int, train: Callable[..., Trained]
) -> tuple[Trained, Denoiser]:
    """The denoiser after its own training's last epoch."""
    data = page_loaders(seed, steps=steps, batch=_BATCH)
    trained = train(_new(seed), data, replace(recipe, seed=seed), place / "start")
    cnn = last_epoch(place / "start", _new(seed))
    if not isinstance(cnn, Denoiser):
        raise TypeError("a denoiser's copy is one")
    return trained, cnn


def _goes_on(
    arm: Arm, cnn: Denoiser, seed: int, folder: Path, recipe: Recipe, steps: int, train: Callable[..., Trained]
) -> Trained:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        begun = _new(seed) if arm.scratch else copy.deepcopy(cnn)
        network = arm.build(begun)
    epochs = max(1, round(arm.epochs * recipe.epochs / ONWARD.epochs))
    groups = partial(parameter_groups, lr=arm.lr, weight_decay=recipe.weight_decay)
    own = replace(recipe, seed=seed, lr=arm.lr, epochs=epochs)
    data = page_loaders(seed + 1000, steps=steps, batch=_BATCH)
    return train(network, data, own, folder, groups=groups)


def _with_rates(
    arms: dict[str, Arm],
    folder: Path,
    start: Recipe,
    onward: Recipe,
    steps: int,
    train: Callable[..., Trained],
    say: Callable[[str], None],
) -> dict[str, Arm]:
    """The arms with the rates whose runs clean the validation pages best."""
    folder.mkdir(exist_ok=True)
    say("A CNN learns to clean pages, with which rates are chosen")
    _, cnn = _started(folder, RATE_SEED, start, steps, train)
    chosen: dict[str, Arm] = {}
    for name, arm in arms.items():
        if arm.rate_of is not None:
            chosen[name] = replace(arm, lr=chosen[arm.rate_of].lr)
            continue
        losses = {}
        for lr in RATES:
            say(f"Rates: {arm.title}, at {lr:g}")
            run = _goes_on(replace(arm, lr=lr), cnn, RATE_SEED, folder / f"{name}-{lr:g}", onward, steps, train)
            losses[lr] = run.records[run.best_epoch]["validation"]["loss"]
        chosen[name] = replace(arm, lr=min(losses, key=losses.__getitem__))
    return chosen


def _result(trained: Trained, network: nn.Module, lr: float, tests: dict[int, tuple[Tensor, Tensor]]) -> ArmResult:
    count = sum(parameter.numel() for parameter in network.parameters())
    found = {kinds: psnr(network, pairs) for kinds, pairs in tests.items()}
    return ArmResult(found, lr, trained.best_epoch, count)


def _step_seconds(networks: dict[str, nn.Module]) -> dict[str, float]:
    """Forward and backward on a batch, in training mode; the networks take turns, so that all see the same load."""
    (noisy, clean), taken = unseen_pages(_BATCH), {name: list[float]() for name in networks}
    copies = {name: copy.deepcopy(network).train() for name, network in networks.items()}
    for _ in range(_STEPS_TIMED):
        for name, network in copies.items():
            began = time.process_time()
            F.mse_loss(network(noisy), clean).backward()
            taken[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _new(seed: int) -> Denoiser:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Denoiser()
