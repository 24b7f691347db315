"""``conv2attn graft``: gives a CNN spare heads, and with data says whether they pay."""

from __future__ import annotations

import json
import shlex
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
from ..convert.files.opening import Opening
from ..convert.files.preprocessing import Normalization, Preprocessing, caveats
from ..convert.inputs import example_image
from ..convert.layer.layer import SelfAttention
from ..convert.network.convert import is_convolution
from ..convert.network.graft import AUTO, GraftReport, graft
from ..convert.network.modules import modules_of
from ..convert.network.plan import usual_size
from ..convert.network.report import Report
from ..convert.subclasses.computed import in_eval_mode
from ..convert.write import check_apart
from ..learn.chance import LEVEL
from ..learn.comparison import small_cnn_for
from ..learn.data.datasets import load_data
from ..learn.data.images import ImageData
from ..learn.grafting import TITLES, compare_grafts, of_images
from ..learn.plan import Plan, plan_of
from ..learn.training.fit import check_packages
from ..learn.training.folders import write_json
from ..learn.training.recipe import Recipe, Session
from ..show.text import Table
from .graft_verdict import GRAFTS, above_chance, cautions_of, chance_of, notes_of, scores_table, verdict_of
from .opening import opened, options_to_open
from .terminal import Done, progress, say

COMPARISON = "graft.json"
_USES = "to train on", "to choose epochs and rates with", "to test on"


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
    """Writes a CNN with spare heads, which computes what the CNN computes. The arguments are the command's options."""
    with progress("Reading", total=None):
        network = opened(checkpoint, opening).whole()
        cnn = network.cnn()
    # graft, counting pixels on an example
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
    # the report, with the next command
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
    table: list[Table | str] = [scores_table(outcomes, comparison.measures), *notes_of(outcomes)]
    warned = [f"Warning: {each}" for each in found["warnings"]]
    if not found["chance"]["above"]:  # before any numbers that could be compared
        return Done(found, [f"{verdict}.", "", *table, *warned, *_closing(found, following)])
    return Done(found, [*table, *warned, f"{verdict}.", *_closing(found, following)])


def _planned(plan: Plan, epochs: int, rates: Sequence[float]) -> str:
    """Steps of a training, and the learning rates to choose from."""
    steps, several = plan.epoch_steps, bool(rates[1:])
    return (
        f"Each training: {epochs} epoch{'s' * (epochs > 1)} of {steps} step{'s' * (steps > 1)} on {plan.batch_size} "
        f"images, {epochs * steps:,} steps; learning rate{'s' * several} {', '.join(f'{rate:g}' for rate in rates)}"
    )


def _closing(found: Mapping[str, Any], following: Mapping[str, str]) -> list[str]:
    """Files of a comparison's folder, and the commands that take it."""
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
