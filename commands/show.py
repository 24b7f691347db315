"""``conv2attn show``: a picture or the page of a converted network, a picture or the film of an experiment.

The network is a folder that ``convert`` wrote, or a checkpoint, which is converted here.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..convert.agreement.report import run_on_drawn
from ..convert.arguments import USUAL_SIZES, Size
from ..convert.errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    InputError,
    OptionError,
    Problem,
    SelectionError,
)
from ..convert.examples.images import DRAWN_SIZE, drawn_image
from ..convert.files.folder import converted_in
from ..convert.files.layers import Layers
from ..convert.files.opening import Opening
from ..convert.files.preprocessing import Normalization, Preprocessing, caveats
from ..convert.inputs import likely_channels
from ..convert.network.convert import convert_model
from ..convert.network.report import Report
from ..convert.plain import path_in, read_json
from ..convert.write import CONFIG, REPORT, WEIGHTS, check_file, write_file
from ..learn.data.pictures import LONGEST, picture_reader, read_picture
from ..learn.experiment.folder import Experiment, History, is_experiment, read_accuracies, read_experiment, read_history
from ..learn.kinds import BLOCKS
from ..show.page.draw import DEFAULT_PICTURE, PAGE, check_picture, drawn, form_of
from ..show.page.look import own_views
from ..show.page.write import film_page
from ..show.pictures.scene import Scene, find_layer, scenes, set_alpha, undrawable
from .opening import opened
from .places import check_places
from .terminal import say

if TYPE_CHECKING:
    from ..show.pictures.style import Sheet


@dataclass(frozen=True)
class View:
    """Choice of what a picture or a page shows."""

    layer: str | None = None  # name of the only layer to show; None means all
    image: Path | None = None  # file of the image; None means one that is drawn
    size: Size | None = None  # rows and columns to scale the image to, or to draw it in
    query: tuple[int, int] | None = None  # the query, as a pixel of the image; None means its middle
    alpha: float | None = None  # sharpness of all heads; None means the layers' own
    picture: str | None = None  # one of ``PICTURES``, for a picture
    # applied to the image; None means what the network was trained on, or values from -1 to 1
    normalization: Normalization | None = None


def show(source: Path, out: Path, view: View, opening: Opening | None = None, *, force: bool = False) -> list[str]:
    """Draws what the view asks for and writes it, or leaves everything as it was.

    The arguments are the command's options; the result has the names of the layers that the file shows with values.
    """
    # an experiment, or a network
    form = form_of(out)
    runs = runs_at(source)
    check_picture(view.picture, form, is_of_network=runs is None)
    if runs is not None:
        return _show_runs(runs, out, view, form, force=force)
    # the network, and that nothing which is read is overwritten
    if view.image is not None and not view.image.is_file():
        raise CheckpointError(f"there is no file {view.image}, the image to show attention on")
    read = [*(source / name for name in (CONFIG, WEIGHTS, REPORT)), *([view.image] if view.image else [])]
    check_places(check_file, out, source, force=force, sources=read)
    subject = load_subject(source, opening or Opening())
    sources = [source, *read, *subject.files]
    check_file(out, force=force, sources=sources)
    if isinstance(subject.model, Layers):
        _check_layers_alone(source, view, subject.unbuilt)
    # the image, and what the layers do with it
    if view.layer is not None:
        find_layer(subject.model, view.layer)
    if view.alpha is not None:
        set_alpha(subject.model, view.alpha)
    image: Tensor | None = None
    shown: list[Scene] = []
    try:
        image = view_image(subject, view)
        shown = _shown(subject, image, view, all_layers=form != PAGE)
    except InputError:
        if form != PAGE or view != View():
            raise  # such a page shows where heads look, and says why it has no values
    content = (
        _page(subject, source.name, image, view)
        if form == PAGE
        else drawn(shown, view.picture or DEFAULT_PICTURE, form)
    )
    write_file(out, lambda path: path.write_bytes(content), force=force, sources=sources)
    return [scene.name for scene in shown]


def _page(subject: Subject, title: str, image: Tensor | None, view: View) -> bytes:
    from ..show.page.write import DRAWN, make_page

    seen = DRAWN if view.image is None else f"the image {view.image.name}"
    about: dict[str, Any] = {"image": image, "seen": seen, "pixel": view.query, "only": view.layer}
    return make_page(subject.model, subject.report, title=title, **about).text.encode()


def _check_layers_alone(source: Path, view: View, unbuilt: ArchitectureError | None) -> None:
    """Says what becomes of a choice where layers are shown without their network, and why they are if that is odd."""
    if view.image is not None:
        raise unbuilt or ArchitectureNeededError(
            f"{source} describes layers alone, and an image is seen by the whole network"
        )
    if unbuilt is not None:
        say(f"warning: layers are shown without their network: {unbuilt}", err=True)
    if view.size is not None or view.query is not None:
        say("Without the network, size and query are those of each layer's own drawn input", err=True)


def show_article(out: Path, *, force: bool = False) -> None:
    """Writes the article, one HTML file."""
    from ..show.article.write import make_article

    if out.suffix.lower() != f".{PAGE}":
        raise OptionError(f"{out} cannot be written: the article is an HTML file, whose name ends in .{PAGE}")
    check_file(out, force=force)
    content = make_article().encode()
    write_file(out, lambda path: path.write_bytes(content), force=force)


def _show_runs(runs: Runs, out: Path, view: View, form: str, *, force: bool) -> list[str]:
    """Draws the picture, or the film, of an experiment; returns what it shows."""
    if view != View(layer=view.layer, picture=view.picture):
        raise OptionError("an experiment has its own images, queries and heads; only a picture and a layer are chosen")
    check_file(out, force=force, sources=[runs.folder])
    if form == PAGE:
        if view.layer is not None:
            raise OptionError("a film shows every layer")
        content = film_page(runs.history(), title=runs.title).encode()
    else:
        from ..show.pictures.style import drawn_in_style

        if view.layer is not None and not (view.layer.isascii() and view.layer.isdigit()):
            raise SelectionError(f"layers of an experiment are numbered, from 1; got {view.layer!r}")
        number = None if view.layer is None else int(view.layer)
        with drawn_in_style():
            content = draw_runs(runs, view.picture or "contours", layer=number).save(form)
    write_file(out, lambda path: path.write_bytes(content), force=force, sources=[runs.folder])
    return [runs.title]


def view_image(subject: Subject, view: View) -> Tensor:
    """The image that is asked for, or one that is drawn: small, or as large as in training, as the network takes it."""
    if view.image is not None and subject.preprocessing is not None and view.normalization is None:
        say(*caveats(subject.preprocessing), err=True)
        return picture_reader(subject.preprocessing, view.size)(view.image).unsqueeze(0)
    if view.image is not None:
        channels = likely_channels(subject.model)[0]
        with suppress(ConversionError):  # it may run on no drawn image, but on this one
            channels = _drawn(subject, view).shape[1]
        picture = read_picture(view.image, channels, view.size, longest=LONGEST).unsqueeze(0)
        return picture if view.normalization is None else view.normalization(picture)
    if view.normalization is not None:
        raise OptionError("mean and std are for an image; a drawn one has values from -1 to 1")
    return _drawn(subject, view)


def _drawn(subject: Subject, view: View) -> Tensor:
    known = None if subject.preprocessing is None else subject.preprocessing.size
    if isinstance(subject.model, Layers):
        return drawn_image(3, view.size or DRAWN_SIZE)
    sizes = [DRAWN_SIZE, known or Size(*USUAL_SIZES[2])] if view.size is None else [view.size]
    return run_on_drawn(subject.model, sizes)[0]


def _shown(subject: Subject, image: Tensor, view: View, *, all_layers: bool) -> list[Scene]:
    """All scenes, or that of the layer that is asked for, under the name that it was asked by.

    Layers without their network that cannot be drawn are left out; with ``all_layers`` they are refused.
    """
    model = subject.model
    layer = None if view.layer is None else find_layer(model, view.layer)
    if layer is not None and (reason := undrawable(layer.spec)) is not None:
        raise ConversionError(f"layer {view.layer!r} cannot be drawn: {reason}")
    if isinstance(model, Layers):
        entries = [entry for entry in subject.report.layers if view.layer is None or view.layer in entry.names]
        seen, unseen = own_views(model, entries, image, view.query)
        if unseen and (all_layers or not seen):
            name, reason = next((name, reason) for name, reason in unseen.items() if name)
            raise ConversionError(f"layer {name!r} cannot be drawn: {reason}")
        found = list(seen.values())
    else:
        found = scenes(model, image, pixel=view.query)
    if layer is None:
        return found
    chosen = [replace(scene, name=str(view.layer)) for scene in found if model.get_submodule(scene.name) is layer]
    if not chosen:
        raise SelectionError(f"the network does not use its layer {view.layer!r} when it sees the image")
    return chosen


@dataclass(frozen=True)
class Subject:
    """A converted network and its report."""

    model: nn.Module  # in eval mode
    report: Report  # the report on attention layers and remaining convolutions
    files: tuple[Path, ...] = ()  # the files that it was read from
    preprocessing: Preprocessing | None = None  # its preprocessing in training, where that is known
    unbuilt: ArchitectureError | None = None  # why only layers were read though the folder names their architecture


def load_subject(path: Path, opening: Opening) -> Subject:
    """Reads a converted network, or reads a CNN and converts what can be converted."""
    path, unbuilt = converted_in(path), None
    network = opened(path, opening)
    try:
        if network.recipe is not None:
            network.whole()
    except ArchitectureError as error:
        unbuilt = error
    if not network.is_converted:
        made, report = convert_model(network.cnn(), inplace=True, skip_unsupported=True)
        return Subject(made, report.noted(network.notes, network.originals), network.files, network.preprocessing)
    model = network.attention()
    report = Report.of(model)
    if (path / REPORT).is_file():
        skipped, notes = _recorded(path_in(path, REPORT))
        report = replace(report, skipped=skipped).noted(notes)
    return Subject(model, report, network.files, network.preprocessing, unbuilt)


def _recorded(path: Path) -> tuple[tuple[Problem, ...], dict[str, str]]:
    """The convolutions that the report in a folder says were left, and its notes by the names of the layers."""
    try:
        report: Any = read_json(path)
        skipped = tuple(Problem(str(entry["name"]), str(entry["reason"])) for entry in report["skipped"])
        noted = [entry for entry in report["layers"] if entry.get("note") is not None]
        return skipped, {str(entry["names"][0]): str(entry["note"]) for entry in noted}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as the report of a conversion") from error


RUN_PICTURES = ("contours", "training", "curves", "maps")
DRAFT_LAYER = 3  # of the draft's Figure 3


@dataclass(frozen=True)
class Runs:
    """The runs that a path names: all of an experiment's folder, or those of one encoding."""

    folder: Path
    encoding: str | None

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return read_experiment(self.folder)

    @property
    def title(self) -> str:
        """Title for people."""
        return self.encoding or f"an experiment on {self.experiment.data.partition(':')[0]}"

    def history(self) -> History:
        """The first seed's heads of the encoding, or of the first one that has heads."""
        names = [name for name in self.experiment.encodings if name not in BLOCKS]
        if self.encoding is None and not names:
            raise SelectionError(f"{self.folder} holds no network of attention")
        return read_history(self.folder, self.encoding or names[0])


def runs_at(path: Path) -> Runs | None:
    """The runs of an experiment's folder, or of an encoding's folder in it; None if it is neither."""
    if is_experiment(path):
        return Runs(path, None)
    if is_experiment(path.parent) and path.name in read_experiment(path.parent).encodings:
        return Runs(path.parent, path.name)
    return None


def draw_runs(runs: Runs, picture: str, *, layer: int | None = None) -> Sheet:
    """Draws one of ``RUN_PICTURES``; of "training" a layer, from 1, by default 3, or the last of fewer."""
    if picture not in RUN_PICTURES:
        raise OptionError(f"a picture of an experiment is one of {', '.join(RUN_PICTURES)}; got {picture}")
    if layer is not None and picture != "training":
        raise OptionError("a layer of an experiment is chosen for the picture training")
    # Matplotlib, which the modules that draw need, may not be installed: they are imported only now.
    from ..show.pictures.training import draw_curves, draw_head_maps, draw_layers, draw_training

    experiment = runs.experiment
    if picture == "curves":
        names = experiment.encodings if runs.encoding is None else (runs.encoding,)
        accuracies = {name: read_accuracies(runs.folder, name, experiment.seeds) for name in names}
        return draw_curves(accuracies, data=experiment.data.partition(":")[0])
    history = runs.history()
    if picture != "training":
        return (draw_layers if picture == "contours" else draw_head_maps)(history)
    depth = len(history.layers[0])
    chosen = min(DRAFT_LAYER, depth) if layer is None else layer
    if not 1 <= chosen <= depth:
        raise SelectionError(f"layers are numbered 1 to {depth}; got {chosen}")
    return draw_training(history, chosen)
