"""Results of an experiment: rows of encodings and accuracy (the draft's Table 2), curves (its Figure 4).

Attention of trained heads: contours by layer (the draft's Figure 2) and by epoch (its Figure 3), and maps.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...learn.experiment.folder import History, Result
from ...learn.heads.positions import Grid
from .contours import contour_heads
from .limits import evenly
from .maps import Window, mark
from .style import ATTENTION, BLUE, GREEN, GREY, HEAD_COLOURS, INK, ORANGE, PURPLE, SKY, VERMILION, Sheet

HEADER = ("network", "positions", "content", "parameters", "seeds", "test accuracy", "worst seed")
_POSITIONS = {
    "quadratic": "relative, isotropic",
    "gaussian": "relative, any Gaussian",
    "learned": "relative, tables",
    "sinusoidal": "relative, sinusoids",
    "absolute": "absolute, sinusoids",
}
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK, GREY)
_CURVES_WIDTH, _CURVES_HEIGHT = 6.2, 3.1
_NAMES_APART = 0.055  # of the height: names at the right edge do not lie on each other


def table_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """The texts of the rows, under ``HEADER``, in the order in which the encodings come."""
    rows: list[tuple[str, ...]] = []
    for name, runs in by_encoding(results).items():
        base, _, content = name.partition("+")
        accuracies = [100 * run.test for run in runs]
        about = name, _POSITIONS.get(base, "convolution"), "yes" if content else "no", f"{runs[0].parameters:,}"
        rows.append((*about, str(len(runs)), f"{spread(accuracies, 1)} %", f"{min(accuracies):.1f} %"))
    return rows


def by_encoding(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs of each encoding."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.encoding, []).append(result)
    return found


def spread(values: Sequence[float], digits: int, *, signed: bool = False) -> str:
    """Mean and, of several, standard deviation."""
    mean = f"{statistics.fmean(values):{'+' if signed else ''}.{digits}f}"
    return mean if len(values) == 1 else f"{mean} \u00b1 {statistics.stdev(values):.{digits}f}"


def distance_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """For each encoding with heads, the mean distance of what is attended, in pixels, layer by layer."""
    rows = []
    for name, runs in by_encoding(results).items():
        for when, title in ((0, "before"), (1, "after")):
            layers = zip(*(run.nonlocality[when] for run in runs if run.nonlocality), strict=True)
            if cells := [spread(each, 2) for each in layers]:
                rows.append((name, title, *cells))
    return rows


def draw_curves(accuracies: Mapping[str, Sequence[Sequence[float]]], *, data: str) -> Sheet:
    """A line for each encoding: the mean over seeds, in a band from the lowest to the highest seed."""
    seeds = max(len(runs) for runs in accuracies.values())
    spread = f" Line: the mean over {seeds} seeds; band: from the lowest to the highest." if seeds > 1 else ""
    sheet = Sheet(
        _CURVES_WIDTH + 1.2,
        _CURVES_HEIGHT,
        title=f"Accuracy on the validation images of {data}",
        caption=(
            f"After each epoch; 0 is before training.{spread} The axis is cut below the lowest accuracy of the second "
            "half. Dashed: residual networks."
        ),
    )
    # A line and a band for each network.
    axes = sheet.axes(0.6, 0.05, _CURVES_WIDTH - 0.7, _CURVES_HEIGHT - 0.5)
    curves = {name: torch.tensor(runs, dtype=torch.float64, device="cpu") for name, runs in accuracies.items()}
    for number, (name, runs) in enumerate(curves.items()):
        colour, epochs = _COLOURS[number % len(_COLOURS)], range(runs.shape[1])
        style = "--" if name.startswith("resnet") else "-"
        axes.fill_between(epochs, runs.amin(0).numpy(), runs.amax(0).numpy(), color=colour, alpha=0.15, linewidth=0)
        axes.plot(epochs, runs.mean(0).numpy(), style, color=colour, linewidth=1.2)
    # Axes, from below the lowest accuracy of the second half.
    low = min(float(runs[:, runs.shape[1] // 2 :].min()) for runs in curves.values())
    bottom, top = max(0.0, low - 0.02), 1.0
    axes.set(xlim=(0, max(runs.shape[1] for runs in curves.values()) - 1 or 1), ylim=(bottom, top))
    axes.set(xlabel="epoch", ylabel="accuracy")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    # Names at the right ends of the lines, kept apart.
    ends = {name: (float(runs[:, -1].mean()) - bottom) / (top - bottom) for name, runs in curves.items()}
    for name, place in _apart(ends).items():
        colour = _COLOURS[list(curves).index(name) % len(_COLOURS)]
        axes.text(1.01, place, name, color=colour, size=7, va="center", transform=axes.transAxes)
    return sheet


def _apart(places: Mapping[str, float]) -> dict[str, float]:
    """The names from the highest to the lowest, each far enough below the one before."""
    found: dict[str, float] = {}
    limit = 1.0
    for name in sorted(places, key=lambda name: -places[name]):
        found[name] = min(places[name], limit)
        limit = found[name] - _NAMES_APART
    return found


_MOST_EPOCHS = 8
_SIDE, _ACROSS = 1.9, 4  # inches of a panel, panels in a row
_BESIDE = 0.5  # pixels shown around the keys, into which contours bulge
_CONTOURS = (
    "From the pixel in the middle (square); dotted: the image's border. Thick and filled: around the fewest pixels "
    "that hold 50\u00a0% of a head's attention; thin: 90\u00a0%, where these are more; interpolated between pixels. A "
    f"colour for each head; they repeat after {len(HEAD_COLOURS)}."
)


def draw_layers(history: History) -> Sheet:
    """A panel for each layer, after the best epoch."""
    layers = history.layers[history.best]
    panels = [(f"layer {number}", layer.maps) for number, layer in enumerate(layers, 1)]
    across = 3 if len(panels) > 4 else max(len(panels), 2)
    title = f"Contours of attention by layer: {history.encoding}, after epoch {history.best}"
    return _sheet(history, panels, across, title)


def draw_training(history: History, layer: int) -> Sheet:
    """A panel for each of some epochs, of one layer, counted from 1."""
    epochs = evenly(range(len(history.layers)), _MOST_EPOCHS)
    panels = [(f"epoch {epoch}", history.layers[epoch][layer - 1].maps) for epoch in epochs]
    return _sheet(history, panels, _ACROSS, f"Contours of attention during training: {history.encoding}, layer {layer}")


def _sheet(history: History, panels: list[tuple[str, torch.Tensor]], across: int, title: str) -> Sheet:
    rows = math.ceil(len(panels) / across)
    width = across * (_SIDE + 0.15) + 0.15
    caption = f"{_CONTOURS}{_padding(history.grid)} Seed {history.seed}."
    sheet = Sheet(width, rows * (_SIDE + 0.3) + 0.1, title=title, caption=caption)
    for number, (name, maps) in enumerate(panels):
        row, column = divmod(number, across)
        axes = sheet.axes(0.15 + column * (_SIDE + 0.15), 0.22 + row * (_SIDE + 0.3), _SIDE, _SIDE)
        axes.set_title(name, pad=3, color=GREY, size=7)
        window = _whole(history.grid)
        contour_heads(axes, window, maps)
        _mark(axes, history.grid, beside=_BESIDE)
    return sheet


def draw_head_maps(history: History) -> Sheet:
    """A map for each head (column) of each layer (row) after the best epoch, heads by their centres, row by row."""
    layers = history.layers[history.best]
    heads, side = len(layers[0].maps), 0.72
    width = 0.75 + heads * (side + 0.06)
    sheet = Sheet(
        max(width, 5.5),
        len(layers) * (side + 0.06) + 0.2,
        title=f"Where heads look: {history.encoding}, after epoch {history.best}",
        caption=(
            "A row for each layer, a column for each head, ordered by the place of its nearest convolution tap. "
            "Darker: more attention, each map from 0 to its largest value. Square: the query, the pixel in the middle."
            f"{_padding(history.grid)} Seed {history.seed}."
        ),
    )
    for row, layer in enumerate(layers):
        sheet.write(0.15, row * (side + 0.06) + 0.4, f"layer {row + 1}", size=7, color=GREY)
        for column, head in enumerate(sorted(range(heads), key=lambda head: layer.taps[head].tolist())):
            axes = sheet.axes(0.75 + column * (side + 0.06), row * (side + 0.06) + 0.05, side, side)
            plane = layer.maps[head]
            axes.imshow(
                plane.numpy(), extent=_whole(history.grid).extent, cmap=ATTENTION, vmin=0, vmax=float(plane.max())
            )
            _mark(axes, history.grid)
    return sheet


def _whole(grid: Grid) -> Window:
    return Window(0, grid.key_rows, 0, grid.key_columns)


def _padding(grid: Grid) -> str:
    return " Beyond the image's border are zeros, which heads see as well." if grid.padding else ""


def _mark(axes: Any, grid: Grid, *, beside: float = 0.0) -> None:
    first, (rows, columns) = grid.padding, (grid.rows, grid.columns)
    image = Window(first, first + rows, first, first + columns) if first or beside else None
    mark(axes, _whole(grid), (rows // 2 + first, columns // 2 + first), image=image, beside=beside)
