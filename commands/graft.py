"""``conv2attn graft``: gives a CNN spare heads, and with data says whether they pay."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from ..convert.arguments import Size
from ..convert.errors import OptionError
from ..convert.files.architecture import Architecture
from ..convert.files.folder import NETWORK, save_converted
from ..convert.files.open import Network
from ..convert.files.preprocessing import Normalization, Preprocessing, caveats
from ..convert.files.weights import Opening
from ..convert.inputs import example_image
from ..convert.network.convert import is_convolution
from ..convert.network.graft import AUTO, GraftReport, graft
from ..convert.network.plan import usual_size
from ..convert.network.report import Report
from ..convert.subclasses.computed import in_eval_mode
from ..convert.write import check_apart, check_target
from ..learn.comparison import ArmResult, Measure, Outcomes
from ..learn.data.datasets import load_data
from ..learn.grafting import compare_grafts, leader, of_images
from ..learn.training.folders import write_json
from ..learn.training.recipe import Recipe, Session
from ..show.pictures.training import spread
from ..show.text import Table
from .opening import opened, options_to_open
from .terminal import Done, progress, say

COMPARISON = "graft.json"
TITLES = {
    "start": "the CNN at the start",
    "cnn": "the CNN, as many steps",
    "time": "the CNN, as much time",
    "random": "a block that starts at random",
    "block": "the non-local block",
    "before": "graft, in front of the taps",
    "beside": "graft, beside the taps",
}
"""The rows of the table, by the names of the sides."""


def graft_checkpoint(
    checkpoint: Path,
    out: Path,
    *,
    opening: Opening,
    where: Sequence[str],
    options: Mapping[str, Any],
    size: Size | None,
    force: bool,
) -> Done:
    """Writes a CNN with spare heads, which computes what the CNN computes. The arguments are the command's options.

    Raises:
        ConversionError: The checkpoint cannot be opened or grafted, or the folder cannot be written.
    """
    check_target(out, force=force, sources=[checkpoint])
    with progress("Reading", total=None):
        network = opened(checkpoint, opening).whole()
        cnn = network.cnn()
    with in_eval_mode(cnn):
        example = example_image(cnn, size or _size(network, cnn))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cost, which is among the notes
        made = graft(cnn, where=_where(where), example=example, inplace=True, **options)
    with progress("Writing", total=None):
        save_converted(
            made.model,
            out,
            report=Report.of(made.model),
            architecture=network.architecture,
            preprocessing=network.preprocessing,
            source=network.checkpoint,
            force=force,
        )
    data = {"folder": str(out), "layers": _layers(made.report), "notes": list(made.report.notes)}
    shape = "x".join(map(str, example.shape[1:]))
    counted = f"Pixels are counted on an image of {shape}; --size ROWSxCOLUMNS counts on another."
    closing = f"Wrote {out}: it computes what the CNN computes until training changes W_out"
    following = shlex.join(["conv2attn", "show", str(out), *options_to_open(network)])
    lines = [*str(made.report).splitlines(), *([counted] if size is None else []), closing, f"Next: {following}"]
    return Done(data | {"next": following}, lines)


def compare_on_data(
    checkpoint: Path | None,
    out: Path,
    *,
    opening: Opening,
    data: str,
    size: Size | None,
    normalization: Normalization | None,
    where: Sequence[str],
    options: Mapping[str, Any],
    recipe: Recipe,
    rates: Sequence[float],
    seeds: int,
    session: Session,
) -> Done:
    """Trains a CNN further in every way, and keeps the first seed's graft. The arguments are the command's options.

    Raises:
        ConversionError: The checkpoint or the data cannot be opened, or do not fit, or the folder cannot be written.
    """
    network = None if checkpoint is None else opened(checkpoint, opening).whole()
    cnn = None if network is None else network.cnn()
    sources = () if checkpoint is None or network is None else (checkpoint, *network.files)
    architecture = None if network is None else network.architecture
    check_apart(out, sources)
    check_apart(out / NETWORK, sources)  # which may be a link
    preprocessing = None if network is None else network.preprocessing
    images = _images(data, cnn, preprocessing, normalization, size=size, out=out)
    if cnn is None:
        arguments = {"channels": images.channels, "classes": len(images.classes)}
        architecture = Architecture("conv2attn.learn.comparison:small_cnn", arguments)
    side = "beside" if options.get("beside") else "before"
    shared = {name: value for name, value in options.items() if name != "beside"}
    comparison = of_images(images, cnn=cnn, recipe=recipe, rates=rates)
    outcomes = compare_grafts(comparison, out, where=_where(where), options=shared, seeds=seeds, session=session)
    if side not in outcomes.networks:
        raise OptionError("heads beside the taps of a transposed convolution are none: leave --beside out")
    kept = outcomes.networks[side]
    save_converted(kept, out / NETWORK, architecture=architecture, preprocessing=preprocessing, force=True)
    verdict = verdict_of(outcomes, comparison.measures[0])
    found = {"folder": str(out), "recipe": asdict(recipe), **outcomes.to_json(), "verdict": verdict}
    write_json(out / COMPARISON, found, sources=sources)
    closing = f"Wrote {out}; show, same and restore --ungraft take it as {TITLES[side]}, first seed"
    return Done(found, [scores_table(outcomes, comparison.measures), verdict, closing])


def _images(
    data: str,
    cnn: nn.Module | None,
    preprocessing: Preprocessing | None,
    normalization: Normalization | None,
    *,
    size: Size | None,
    out: Path,
) -> Any:
    """The data, with the channels and the preprocessing of the CNN."""
    channels = None if preprocessing is None else preprocessing.channels
    if channels is None and cnn is not None:
        first = next((module for module in cnn.modules() if is_convolution(module)), None)
        channels = None if first is None else int(getattr(first, "in_channels", 3))
    trained_on = preprocessing and (preprocessing.with_normalization(normalization) if normalization else preprocessing)
    say(*caveats(trained_on), err=True)
    return load_data(data, channels=channels, size=size, preprocessing=trained_on or normalization, out=out)


def _where(names: Sequence[str]) -> str | Sequence[str]:
    """The layers as ``graft`` takes them: a word alone may be one of its own."""
    return AUTO if not names else names[0] if len(names) == 1 else names


def _size(network: Network, cnn: nn.Module) -> Size:
    known = network.preprocessing
    return usual_size(cnn) if known is None or known.size is None else Size(*known.size)


def _layers(report: GraftReport) -> list[dict[str, Any]]:
    return [
        {
            "names": list(layer.names),
            "size": None if layer.size is None else list(layer.size),
            "parameters": layer.parameters,
            **vars(layer.spare),
        }
        for layer in report.layers
    ]


def scores_table(outcomes: Outcomes, measures: Sequence[Measure], titles: Mapping[str, str] = TITLES) -> Table:
    """Scores of every side before and after, paired gains over the CNN, rate, and time of a step.

    Args:
        outcomes: The results.
        measures: The scores that are shown; of the first there are scores and gains, of others gains.
        titles: The rows, by the names of the sides.
    """
    runs = list(outcomes.results.values())
    rows = []
    for name, title in titles.items():
        if name in runs[0]:
            rows.append((title, *_cells(name, [found[name] for found in runs], outcomes, measures)))
    first, *others = measures
    gains = [f"{each.title}: minus the CNN" for each in others]
    header = ("", f"{first.title}, at step 0", "after", "minus the CNN", *gains, "rate", "step (CNN = 1)")
    return Table(header, tuple(rows))


def _cells(name: str, found: Sequence[ArmResult], outcomes: Outcomes, measures: Sequence[Measure]) -> tuple[str, ...]:
    first = measures[0]
    begun = [first.factor * each.begun[first.name] for each in found if each.begun]
    scores = [first.factor * each.scores[first.name] for each in found]
    gains = [[each.factor * gain for gain in outcomes.gains(name, each.name)] for each in measures]
    step = outcomes.seconds[name] / outcomes.seconds["cnn"] if name in outcomes.seconds else None
    own = name in ("start", "cnn")
    return (
        spread(begun, first.digits) if begun else "",
        spread(scores, first.digits),
        *("" if own else spread(gain, each.digits, signed=True) for gain, each in zip(gains, measures, strict=True)),
        "" if name == "start" else f"{found[0].lr:g}",
        "" if step is None else f"{step:.2f}",
    )


def verdict_of(outcomes: Outcomes, measure: Measure, titles: Mapping[str, str] = TITLES) -> str:
    """One sentence on who won, or that the spread does not allow the word."""
    sides = [name for name in titles if name in next(iter(outcomes.results.values())) and name != "start"]
    gains = {name: [measure.factor * gain for gain in outcomes.gains(name, measure.name)] for name in sides}
    first, second, mean, apart, won = leader(gains)
    unit, digits = measure.unit, measure.digits
    gained = f"; it gains {spread(gains[first], digits, signed=True)} {unit} over the CNN trained as long"
    paid = "" if first == "cnn" else gained
    if won:
        ahead = f"{mean:.{digits}f} \u00b1 {apart:.{digits}f} {unit} ahead of {titles[second]}"
        return f"Won by {titles[first]}: {ahead}{paid}"
    count, ahead = len(outcomes.results), f"{titles[first]} is {mean:.{digits}f} {unit} ahead of {titles[second]}"
    if count == 1:
        return f"One seed: no statement on the spread, so none on who won; use --seeds 5. Here {ahead}{paid}"
    return f"The spread does not allow to say who won: {ahead}, over {count} seeds{paid}"
