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
from ..data.images import ImageData
from ..training.evaluate import accuracy
from ..training.fit import check_run
from ..training.recipe import ALONE, Recipe, Session
from .comparison import Arm, Comparison, Outcomes, unchanged
from .melt import AT_REST, melt
from .record import AttentionRecorder
from .run import run_comparison
from .start import small_cnn

START = Recipe(epochs=15, lr=3e-3)
FINE_TUNING = Recipe(epochs=10, lr=1e-4, batch_statistics=False)
ACCURACY = "accuracy"
_LOOKED_AT = 4  # images that layers are looked at with
_NAMED = 10  # classes, at most


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
        rates: Learning rates in place of the recipe's; of several, runs of ``RATE_SEED`` choose one for each side.
        seeds: Number of seeds.
        session: As for ``fit``.

    Returns:
        For each seed what came of "start", "cnn" and "attention": accuracies on test images.

    Raises:
        ConversionError: As ``melt`` and ``fit``.
        RunExistsError: The folder exists, and is not to be resumed.
        OutputError: The folder holds something else, or cannot be made.
    """
    machine, melting = session.machine, melting or {}
    replace(recipe, seed=recipe.seed + as_integer(seeds, "seeds", least=1) - 1)  # refused before anything is written
    rates = tuple(rates) or (recipe.lr,)
    if (melting.get("alpha") or 0.0) >= ONE_HOT_ALPHA[torch.float32]:
        raise OptionError(AT_REST)
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
    if cnn is not None:
        session.say(
            f"Before training, the CNN is right on {accuracy(cnn, data.validation):.1%} of the validation images"
        )
    comparison = Comparison(
        name="melting",
        what=data.name,
        data=lambda _: data,
        score=lambda network: {ACCURACY: accuracy(network, data.test)},
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
