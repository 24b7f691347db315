"""Classification: a CNN is fine-tuned as attention and as a CNN, on the same data with the same schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...convert.arguments import as_integer
from ...convert.errors import OptionError
from ...convert.heads.regime import ONE_HOT_ALPHA
from ..data.corruptions import corrupted
from ..data.images import ImageData
from ..training.batches import Order
from ..training.evaluate import accuracy
from ..training.fit import check_run
from ..training.recipe import ALONE, Recipe, Session
from .comparison import Arm, Comparison, Outcomes, unchanged
from .groups import POSITION_RATE
from .melt import AT_REST, melt
from .record import AttentionRecorder
from .run import run_comparison
from .start import small_cnn

START = Recipe(epochs=15, lr=3e-3)
FINE_TUNING = Recipe(epochs=10, lr=1e-4, batch_statistics=False)
CONTENT_RATES = 3e-4, 1e-3
"""At smaller ones a gate cannot open within the steps of ``FINE_TUNING``."""
LEAST_OPENING = 0.1
"""The least opening that a gate must be able to reach."""
CLEAN = "clean"
_LOOKED_AT = 4  # images that layers are looked at with
_NAMED = 10  # classes, at most
_NEAR = 0.1  # share of the way from chance to perfect; below it, a trained CNN most likely does not know such images


def compare(
    data: ImageData,
    folder: Path,
    *,
    cnn: nn.Module | None = None,
    melting: Mapping[str, Any] | None = None,
    recipe: Recipe = FINE_TUNING,
    rates: Sequence[float] = (),
    seeds: int = 5,
    session: Session = ALONE,
) -> Outcomes:
    """Melts a CNN and fine-tunes both, for several seeds.

    Args:
        data: The images.
        folder: Where runs are kept; its parent must exist.
        cnn: Where to start from; None trains a small CNN on the data for each seed.
        melting: Keyword arguments of ``melt``.
        recipe: Recipe of the fine-tuning; its seed is the first.
        rates: Learning rates in place of the recipe's; of several, runs of ``RATE_SEED`` choose one for each side. By
            default that of the recipe, with content ``CONTENT_RATES``.
        seeds: Number of seeds.
        session: As for ``fit``; it is warned if the CNN is hardly better than chance.

    Returns:
        For each seed what came of "start", "cnn" and "attention": accuracies on test images, clean and corrupted.

    Raises:
        ConversionError: As ``melt`` and ``fit``.
        RunExistsError: The folder exists, and is not to be resumed.
        OutputError: The folder holds something else, or cannot be made.
    """
    machine, melting = session.machine, melting or {}
    replace(recipe, seed=recipe.seed + as_integer(seeds, "seeds", least=1) - 1)  # refused before anything is written
    has_content = melting.get("content") is not None
    rates = tuple(rates) or (CONTENT_RATES if has_content else (recipe.lr,))
    recipes = tuple(replace(recipe, lr=lr) for lr in rates)
    if not has_content and (melting.get("alpha") or 0.0) >= ONE_HOT_ALPHA[torch.float32]:
        raise OptionError(AT_REST)
    if has_content:
        session.say(check_gates(recipes, data))
    new = partial(small_cnn, channels=data.channels, classes=len(data.classes))
    watched = data.validation.taken(slice(_LOOKED_AT)).numbers()
    start = cnn
    if start is None:
        start = new()
        check_run(start, data, START, machine=machine)
    scores, classes = check_run(start, data, recipe, machine=machine), len(data.classes)
    if scores is not None and scores > classes:
        first = ", ".join(data.classes[:_NAMED]) + (", ..." if classes > _NAMED else "")
        session.say(
            f"The network gives {scores} scores; the first {classes} are those of the classes of {data.name}: {first}"
        )
    melted = melt(start, **melting)
    check_run(melted, data, recipe, recorder=AttentionRecorder.of(melted, watched), machine=machine)
    if cnn is not None and (warning := chance_warning(cnn, data)) is not None:
        session.say(warning)
    tests = {CLEAN: data.test, **corrupted(data.test)}
    comparison = Comparison(
        name="melting",
        what=data.name,
        data=lambda _: data,
        score=lambda network: {kind: accuracy(network, split) for kind, split in tests.items()},
        arms={
            "cnn": Arm("fine-tuned as the CNN", unchanged, rates[0]),
            "attention": Arm("fine-tuned as attention", partial(melt, **melting), rates[0]),
        },
        start=START,
        onward=recipe,
        new=new,
        cnn=cnn,
        rates=rates,
        watched=watched,
    )
    return run_comparison(comparison, folder, full=len(rates) > 1, seeds=seeds, session=session)


def check_gates(recipes: Sequence[Recipe], data: ImageData) -> str:
    """Describes how far gates can open at most.

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
