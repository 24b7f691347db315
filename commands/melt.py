"""``conv2attn melt``: fine-tunes a CNN as attention and as a CNN, and compares the two in a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from ..convert.arguments import Size
from ..convert.files.architecture import Architecture
from ..convert.files.folder import NETWORK, save_converted
from ..convert.files.open import open_network
from ..convert.files.preprocessing import Normalization, Preprocessing, caveats
from ..convert.files.weights import Opening
from ..convert.network.convert import is_convolution, name_filter
from ..convert.network.modules import names_by_module
from ..convert.write import check_apart
from ..learn.comparison import ACCURACY, ArmResult, Outcomes, compare
from ..learn.data.datasets import load_data
from ..learn.training.folders import write_json
from ..learn.training.recipe import Recipe, Session
from ..show.pictures.training import spread
from ..show.text import Table, layer_name
from .terminal import Done, say

COMPARISON = "melt.json"
_ROWS = {"start": "the CNN at the start", "cnn": "fine-tuned as the CNN", "attention": "fine-tuned as attention"}


def melt_checkpoint(
    checkpoint: Path | None,
    out: Path,
    *,
    opening: Opening,
    data: str,
    size: Size | None,
    normalization: Normalization | None,
    melting: Mapping[str, Any],
    include: Sequence[str],
    exclude: Sequence[str],
    recipe: Recipe,
    rates: Sequence[float],
    seeds: int,
    session: Session,
) -> Done:
    """Fine-tunes a CNN and its attention, and keeps both. The arguments are the command's options.

    Raises:
        ConversionError: The checkpoint or the data cannot be opened, or do not fit, or the folder cannot be written.
    """
    cnn: nn.Module | None = None
    architecture: Architecture | None = None
    preprocessing: Preprocessing | None = None
    sources: tuple[Path, ...] = ()
    if checkpoint is not None:
        network = open_network(checkpoint, opening)
        cnn = network.whole().cnn()
        sources = (checkpoint, *network.files)
        architecture, preprocessing = network.architecture, network.preprocessing
    if cnn is not None and (include or exclude):
        chosen, groups = name_filter(cnn, include=include, exclude=exclude), names_by_module(cnn, is_convolution)
        names = {name for group in groups for name in group if chosen(cnn.get_submodule(name), name)}
        melting = {**melting, "filter_fn": lambda _, name: name in names}
    check_apart(out, sources)
    check_apart(out / NETWORK, sources)  # which may be a link
    channels = None if preprocessing is None else preprocessing.channels
    if channels is None and cnn is not None:
        first = next((module for module in cnn.modules() if is_convolution(module)), None)
        channels = None if first is None else int(getattr(first, "in_channels", 3))
    trained_on = preprocessing and (preprocessing.with_normalization(normalization) if normalization else preprocessing)
    say(*caveats(trained_on), err=True)
    images = load_data(data, channels=channels, size=size, preprocessing=trained_on or normalization, out=out)
    if cnn is None:
        arguments = {"channels": images.channels, "classes": len(images.classes)}
        architecture = Architecture("conv2attn.learn.comparison:small_cnn", arguments)
    outcomes = compare(images, out, cnn=cnn, melting=melting, recipe=recipe, rates=rates, seeds=seeds, session=session)
    attention = outcomes.networks["attention"]
    save_converted(attention, out / NETWORK, architecture=architecture, preprocessing=preprocessing, force=True)
    ahead = points_ahead(outcomes)
    found = {"folder": str(out), "recipe": asdict(recipe), **outcomes.to_json(), "ahead": ahead}
    write_json(out / COMPARISON, found, sources=sources)
    arms, run = _by_arm(outcomes), list(outcomes.results)
    chosen_rates = ", ".join(f"{name} {arms[name][0].lr:g}" for name in ("cnn", "attention"))
    lines = [
        "A layer with a distance is no longer its original convolution: freeze turns it into a new one, restore "
        "refuses it",
        f"Learning rates: {chosen_rates}. Seeds {', '.join(map(str, run))}. Wrote {out}; show, verify and freeze take "
        f"it as the attention of seed {run[0]}",
    ]
    return Done(found, [_scores_table(arms), _verdict(ahead), _layers_table(arms["attention"][0]), *lines])


def points_ahead(outcomes: Outcomes) -> list[float]:
    """Accuracy of attention minus that of the fine-tuned CNN, in points, for each seed."""
    return [100 * gain for gain in outcomes.gains("attention", ACCURACY)]


def _by_arm(outcomes: Outcomes) -> dict[str, list[ArmResult]]:
    """The results of each arm, one for each seed."""
    return {name: [found[name] for found in outcomes.results.values()] for name in _ROWS}


def _scores_table(arms: Mapping[str, Sequence[ArmResult]]) -> Table:
    rows = tuple(
        (title, spread([100 * each.scores[ACCURACY] for each in arms[name]], 1)) for name, title in _ROWS.items()
    )
    return Table(("", "test accuracy, %"), rows)


def _verdict(points: Sequence[float]) -> str:
    better = sum(each > 0 for each in points), sum(each < 0 for each in points)
    mean = statistics.fmean(points)
    who = "attention is ahead" if mean > 0 else "the CNN is ahead" if mean < 0 else "neither is ahead"
    return (
        f"On test images {who}: attention minus CNN is {spread(points, 1, signed=True)} points; "
        f"attention is better for {better[0]} of {len(points)} seeds, the CNN for {better[1]}"
    )


def _layers_table(attention: ArmResult) -> Table:
    far = "mean attended distance, pixels", "distance from its convolution at most, on [-1, 1]"
    rows = []
    for name, layer in attention.layers.items():
        alphas = f"{min(layer['alpha']):.3g} to {max(layer['alpha']):.3g}"
        rows.append((layer_name(name), alphas, f"{layer['nonlocality']:.2f}", f"{layer['distance']:.3g}"))
    return Table(("layer", "alpha", *far), tuple(rows))
