"""``conv2attn graft``: gives a CNN spare heads, and with data says whether they pay."""

from __future__ import annotations

import json
import shlex
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from ..convert.arguments import Size
from ..convert.files.architecture import Architecture
from ..convert.files.folder import NETWORK, save_converted
from ..convert.files.open import Network
from ..convert.files.preprocessing import Normalization, Preprocessing, caveats
from ..convert.files.weights import Opening
from ..convert.inputs import example_image
from ..convert.layer.layer import SelfAttention
from ..convert.network.convert import is_convolution
from ..convert.network.graft import AUTO, GraftReport, graft
from ..convert.network.modules import modules_of
from ..convert.network.plan import usual_size
from ..convert.network.report import Report
from ..convert.subclasses.computed import in_eval_mode
from ..convert.write import check_apart, check_target
from ..learn.arms import ACCURACY, ArmResult, Measure, Outcomes
from ..learn.chance import LEVEL, Chance
from ..learn.comparison import small_cnn_for
from ..learn.data.datasets import load_data
from ..learn.data.images import ImageData
from ..learn.grafting import TITLES, compare_grafts, lead, of_images
from ..learn.plan import Plan, plan_of
from ..learn.training.fit import check_packages
from ..learn.training.folders import write_json
from ..learn.training.recipe import Recipe, Session
from ..show.pictures.training import spread
from ..show.text import Table
from .opening import check_places, opened, options_to_open
from .terminal import Done, progress, say

COMPARISON = "graft.json"
GRAFTS, CNNS = ("before", "beside"), ("cnn", "time")
"""Rows of the table that are grafts, and rows that are the CNN alone."""
_TRAINED = {"cnn": "the CNN trained for the same number of steps", "time": "the CNN trained for the same time"}
_USES = "to train on", "to choose epochs and rates with", "to test on"
_FEW = 3  # seeds, below which a standard deviation says little


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
    check_places(check_target, out, checkpoint, force=force)
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
    epochs: int | None,
    batch_size: int | None,
    rates: Sequence[float],
    seeds: int | None,
    session: Session,
) -> Done:
    """Trains a CNN further in every way, and keeps the first seed's graft. The arguments are the command's options.

    Epochs, batches, rates and seeds that are not given are planned by the numbers of images.

    Raises:
        ToolError: Packages that training needs are not installed.
        ConversionError: The checkpoint or the data cannot be opened, or do not fit, or the folder cannot be written.
    """
    # the CNN, if one is given
    check_packages(data)
    network = None if checkpoint is None else opened(checkpoint, opening).whole()
    cnn = None if network is None else network.cnn()
    sources = () if checkpoint is None or network is None else (checkpoint, *network.files)
    architecture = None if network is None else network.architecture
    check_apart(out, sources)
    check_apart(out / NETWORK, sources)  # which may be a link
    preprocessing = None if network is None else network.preprocessing
    # the data, and the small CNN for them if none is given
    images = _images(data, cnn, preprocessing, normalization, size=size, out=out)
    if cnn is None:
        architecture = Architecture("conv2attn.learn.comparison:small_cnn", small_cnn_for(images))
    # the plan, where the options leave it open
    plan = plan_of(len(images.train.labels), len(images.validation.labels), batch_size=batch_size)
    recipe = replace(recipe, batch_size=plan.batch_size, epochs=epochs or plan.epochs)
    rates, follows = (rates, True) if rates else (plan.rates, plan.follows_ends)
    say(_planned(plan, recipe.epochs, rates), err=True)
    # train every side with every seed, and keep the first seed's graft
    side = GRAFTS[bool(options.get("beside"))]
    comparison = of_images(images, cnn=cnn, recipe=recipe, rates=rates)
    outcomes = compare_grafts(
        comparison,
        out,
        where=_where(where),
        options=options,
        seeds=seeds or plan.seeds,
        follows_ends=follows,
        session=session,
    )
    kept = outcomes.networks[side]
    save_converted(kept, out / NETWORK, architecture=architecture, preprocessing=preprocessing, force=True)
    # the result, as a file and as a table with the next commands
    chance = chance_of(images)
    verdict = verdict_of(outcomes, comparison.measures[0], chance=chance)
    following = _following(checkpoint, out, network, opening, str(images.size))
    grafted = [names[0] for names, layer in modules_of(kept, SelfAttention).items() if layer.spare]
    found = {
        "folder": str(out),
        "recipe": asdict(recipe),
        **outcomes.to_json(),
        "verdict": verdict,
        "chance": {"level": LEVEL, **chance._asdict(), "above": sorted(above_chance(outcomes, chance))},
        "warnings": cautions_of(outcomes),
        "kept": {"row": side, "seed": recipe.seed, "grafted": grafted, "size": list(images.size)},
        "next": list(following.values()),
    }
    write_json(out / COMPARISON, found, sources=sources)
    table = [scores_table(outcomes, comparison.measures), *notes_of(outcomes)]
    if not found["chance"]["above"]:  # before any numbers that could be compared
        return Done(found, [f"{verdict}.", "", *table, *_cautioned(found), *_closing(found, following)])
    return Done(found, [*table, *_cautioned(found), f"{verdict}.", *_closing(found, following)])


def _planned(plan: Plan, epochs: int, rates: Sequence[float]) -> str:
    """Steps of a training, and the learning rates to choose from."""
    steps = plan.epoch_steps
    return (
        f"Each training: {epochs} epochs of {steps} step{'s' * (steps > 1)} on {plan.batch_size} images, "
        f"{epochs * steps:,} steps; learning rate{'s' * bool(rates[1:])} {', '.join(f'{rate:g}' for rate in rates)}"
    )


def _closing(found: Mapping[str, Any], following: Mapping[str, str]) -> list[str]:
    """What a comparison's folder holds, and the commands that take it."""
    kept = found["kept"]
    grafted = f"{'layers' if kept['grafted'][1:] else 'layer'} {', '.join(kept['grafted'])}"
    return [
        f'Wrote {found["folder"]}. It holds the network of the row "{TITLES[kept["row"]]}", seed {kept["seed"]}, with '
        f"its heads in {grafted}, trained on images of {Size(*kept['size'])}:",
        *(f"  {line}  # {purpose}" for purpose, line in following.items()),
    ]


def _following(
    checkpoint: Path | None, out: Path, network: Network | None, opening: Opening, size: str
) -> dict[str, str]:
    """The commands that a comparison's folder can be given to, by their purposes."""
    needed = [] if network is None else options_to_open(network)
    commands = {"where the heads look": ["show", str(out), *needed, "--size", size]}
    if checkpoint is not None and not (opening.ema or opening.weights):  # which the folder does not have
        given = _options_again(opening)
        both = [*given, *([] if needed and needed[0] in given else needed)]
        commands["how far outputs are from the CNN's"] = ["same", str(checkpoint), str(out), *both, "--size", size]
    commands["the CNN without the heads"] = ["restore", str(out), *needed, "--ungraft", "--out", f"{out}-cnn.pth"]
    return {purpose: shlex.join(["conv2attn", *words]) for purpose, words in commands.items()}


def _options_again(opening: Opening) -> list[str]:
    """The options that say which network a checkpoint was opened as."""
    words, named = [], opening.architecture
    if isinstance(named, Architecture):
        given = [["--arch-arg", f"{name}={json.dumps(value)}"] for name, value in named.arguments.items()]
        words = ["--arch", named.spec, *(word for pair in given for word in pair)]
    return [*words, *(["--trust"] if opening.trust else [])]


def _images(
    data: str,
    cnn: nn.Module | None,
    preprocessing: Preprocessing | None,
    normalization: Normalization | None,
    *,
    size: Size | None,
    out: Path,
) -> ImageData:
    """The data, with the channels and the preprocessing of the CNN."""
    channels = None if preprocessing is None else preprocessing.channels
    if channels is None and cnn is not None:
        first = next((module for module in cnn.modules() if is_convolution(module)), None)
        channels = None if first is None else int(getattr(first, "in_channels", 3))
    trained_on = preprocessing and (preprocessing.with_normalization(normalization) if normalization else preprocessing)
    say(*caveats(trained_on), err=True)
    images = load_data(data, channels=channels, size=size, preprocessing=trained_on or normalization, out=out)
    counts = [f"{len(part.labels):,} {use}" for part, use in zip(images.parts, _USES, strict=True)]
    grey = f", whose grey is repeated as the {images.channels} channels that the CNN takes" * images.is_grey_repeated
    say(f"Data: {images.name}, images of {images.channels}x{images.size}{grey}: {', '.join(counts)}", err=True)
    say(f"{len(images.classes)} classes{_least_of_a_class(images)}", err=True)
    return images


def _least_of_a_class(images: ImageData) -> str:
    """Numbers of images that classes have to choose and to test with: one for all, or the smallest and the largest."""
    told = []
    for part, use in zip(images.parts[1:], _USES[1:], strict=True):
        counts = part.labels.bincount(minlength=len(images.classes)).tolist()
        least, most = min(counts), max(counts)
        told.append(f"{least:,}{f' to {most:,}' * (most > least)} {use}")
    return f", with {' and '.join(told)} in each"


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
    """Scores of every side before and after, paired differences from the CNN, rate, steps and their time.

    Args:
        outcomes: The results.
        measures: The scores that are shown; of the first there are scores and differences, of others differences.
        titles: The rows, by the names of the sides.
    """
    runs = list(outcomes.results.values())
    rows = []
    for name, title in titles.items():
        if name in runs[0]:
            rows.append((title, *_cells(name, [found[name] for found in runs], outcomes, measures)))
    first, *others = measures
    differences = [f"{each.title}: difference" for each in others]
    ends = ("learning rate", "steps", "seconds", "step (CNN = 1)")
    return Table(("", f"{first.title}: before", "after", "difference", *differences, *ends), tuple(rows))


def _cells(name: str, found: Sequence[ArmResult], outcomes: Outcomes, measures: Sequence[Measure]) -> tuple[str, ...]:
    first = measures[0]
    scores = [first.factor * each.scores[first.name] for each in found]
    if name == "start":
        return (spread(scores, first.digits), *[""] * (len(measures) + 5))
    begun = [first.factor * each.begun[first.name] for each in found if each.begun]
    gains = [[each.factor * gain for gain in outcomes.gains(name, each.name)] for each in measures]
    step, count = outcomes.seconds.get(name), found[0].steps
    return (
        spread(begun, first.digits) if begun else "",
        spread(scores, first.digits),
        *(
            "" if name == "cnn" else spread(gain, each.digits, signed=True)
            for gain, each in zip(gains, measures, strict=True)
        ),
        f"{found[0].lr:g}",
        f"{count:,}" if count else "",
        _short(step * count) if step and count else "",
        f"{step / outcomes.seconds['cnn']:.2f}" if step else "",
    )


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"


def _cautioned(found: Mapping[str, Any]) -> list[str]:
    return [f"Warning: {each}" for each in found["warnings"]]


def notes_of(outcomes: Outcomes) -> list[str]:
    """Explanations of the table's signs and columns."""
    seeds = len(outcomes.results)
    return [
        *([f"\u00b1 is the standard deviation over {seeds} seeds."] if seeds > 1 else []),
        f'Difference: from the row "{TITLES["cnn"]}", seed by seed.',
        f'Seconds: steps times the time of a step\'s forward and backward pass. In the row "{TITLES["time"]}", as many '
        f"epochs as come nearest to the time of the {TITLES['before']}.",
    ]


def cautions_of(outcomes: Outcomes) -> list[str]:
    """Reasons why the result is uncertain, each with the option that helps."""
    runs = [found["cnn"] for found in outcomes.results.values()]
    count, epochs = len(runs), runs[0].epochs
    found = []
    if count < _FEW:
        found.append(f"{count} seed{'s are' if count > 1 else ' is'} few: --seeds 5")
    if late := sum(run.is_improving for run in runs):
        still = f"the CNN was still improving after {epochs} epoch{'s' * (epochs > 1)}"
        where = f"the last one was the best on the validation data for {late} of {count} seed{'s' * (count > 1)}"
        found.append(f"{still} ({where}): --epochs {max(10, 2 * epochs)}")
    return found


def chance_of(images: ImageData) -> Chance:
    """The test images, and the share of their largest class."""
    labels = images.test.labels
    return Chance(len(labels), int(labels.bincount().max()) / len(labels))


def above_chance(outcomes: Outcomes, chance: Chance) -> set[str]:
    """The rows that learned something: with at least one seed, more test images are right than chance explains."""
    least = chance.least(_networks(outcomes))
    return {
        name
        for found in outcomes.results.values()
        for name, each in found.items()
        if round(each.scores[ACCURACY] * chance.images) >= least
    }


def _networks(outcomes: Outcomes) -> int:
    """Number of networks that were tested."""
    return sum(map(len, outcomes.results.values()))


def _nothing_learned(outcomes: Outcomes, chance: Chance) -> str:
    tries, count = _networks(outcomes), chance.images
    scores = [each.scores[ACCURACY] for found in outcomes.results.values() for each in found.values()]
    least = chance.least(tries)
    needed = f"{least:,} would be needed" if least <= count else "not even all would be enough"
    return (
        f"Nothing was learned: every row is at chance; the best of {tries} networks has {round(max(scores) * count):,} "
        f"of {count:,} test images right, and {needed} to tell one of them, at the level {LEVEL:g} for all together, "
        f"from a guess that is right for the share of the largest class, {100 * chance.share:.1f} %"
    )


def verdict_of(
    outcomes: Outcomes, measure: Measure, titles: Mapping[str, str] = TITLES, *, chance: Chance | None = None
) -> str:
    """One sentence: whether the better graft beats the better of the CNNs that went on, and what beats both.

    Args:
        outcomes: The results.
        measure: The score that decides.
        titles: The rows, by the names of the sides.
        chance: Of classifiers, the test images: rows that these do not tell from chance are not compared.
    """
    runs = next(iter(outcomes.results.values()))
    learned = set(runs) if chance is None else above_chance(outcomes, chance)
    if chance is not None and not learned:
        return _nothing_learned(outcomes, chance)
    gains = {
        name: [measure.factor * gain for gain in outcomes.gains(name, measure.name)] for name in titles if name in runs
    }
    graft, cnn = (
        max((each for each in names if each in gains), key=lambda name: statistics.fmean(gains[name]))
        for names in (GRAFTS, CNNS)
    )
    if learned.isdisjoint({graft, cnn}):
        return f"Undecided: {_named(graft, titles)} and {_named(cnn, titles)} are at chance"
    found = lead(gains[graft], gains[cnn])
    first, second = (graft, cnn) if found.mean >= 0 else (cnn, graft)
    seeds, digits = len(outcomes.results), measure.digits
    by = f"{abs(found.mean):.{digits}f} {measure.unit} better"
    ahead = f"{_named(first, titles)} is {by} than {_named(second, titles)}"
    if not round(abs(found.mean), digits):
        ahead = f"{_named(first, titles)} and {_named(second, titles)} are as good as each other"
    if seeds == 1:
        return f"Undecided, as one seed has no spread: {ahead}"
    over = f"(\u00b1 {found.spread:.{digits}f}, standard deviation over {seeds} seeds)"
    if not found.is_clear:
        return f"Undecided: {ahead}{', too little for its spread' * bool(round(abs(found.mean), digits))} {over}"
    others = {name: lead(gains[name], gains[first]) for name in gains if name not in (*GRAFTS, *CNNS, "start")}
    better = [name for name, each in others.items() if each.is_clear and each.mean > 0]
    best = max(better, key=lambda name: others[name].mean, default=None)
    more = (
        ""
        if best is None
        else f"; {_named(best, titles)} is {others[best].mean:.{digits}f} {measure.unit} better still"
    )
    is_early = any(each["cnn"].is_improving for each in outcomes.results.values())
    when = f"yet, after {runs['cnn'].epochs} epochs with which the CNN still improves" if is_early else "here"
    return f"Grafting {'pays' if first == graft else 'does not pay'} {when}: {ahead} {over}{more}"


def _named(name: str, titles: Mapping[str, str]) -> str:
    """A side within a sentence."""
    title = titles[name]
    return _TRAINED.get(name) or (title if title.startswith(("a ", "the ")) else f"the {title}")
