"""Attention of trained heads: contours by layer (the draft's Figure 2) and by epoch (its Figure 3), and maps."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....learn.experiment.history import History
from ....learn.heads.positions import Grid
from ..pictures.contours import contour_heads
from ..pictures.limits import evenly
from ..pictures.panel import Window, mark
from ..pictures.style import ATTENTION, GREY, HEAD_COLOURS, Sheet

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
    """The query in the middle, and the image's border where there is something beyond it."""
    first, (rows, columns) = grid.padding, (grid.rows, grid.columns)
    image = Window(first, first + rows, first, first + columns) if first or beside else None
    mark(axes, _whole(grid), (rows // 2 + first, columns // 2 + first), image=image, beside=beside)
