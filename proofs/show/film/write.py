"""Renders the film, which shows where every head looks after every epoch, as one self-contained HTML file."""

from __future__ import annotations

import base64
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from ....learn.experiment.history import History
from ...terminal.printable import CELL, printable
from ..page.write import filled
from ..pictures.captions import evenly

MOST_FRAMES = 101  # epochs 0 to 100; of more, as many as that, evenly, which keeps the file under 5 MB
_SCRIPTS = ("frames.js", "draw.js", "film.js")  # each uses those before it


def film_page(history: History, *, title: str) -> str:
    """The HTML text of the film of a run.

    Args:
        history: The run.
        title: Name of the run, for people.
    """
    names = {"title": printable(title, CELL), "encoding": printable(history.encoding, CELL)}
    program = f"conv2attn {version('conv2attn')}"
    return filled(__package__, "film", _SCRIPTS, **names, program=program, data=film_data(history))


def film_data(history: History) -> dict[str, Any]:
    """Numbers that the page draws, as packed arrays, [frames, layers, heads, ...]."""
    epochs = evenly(range(len(history.layers)), MOST_FRAMES)
    frames = [history.layers[epoch] for epoch in epochs]
    grid = history.grid
    return {
        "epochs": list(epochs),
        "best": history.best,
        "accuracies": history.accuracies,
        "layers": len(frames[0]),
        "heads": len(frames[0][0].maps),
        "rows": grid.key_rows,
        "columns": grid.key_columns,
        "padding": grid.padding,
        "query": [grid.rows // 2 + grid.padding, grid.columns // 2 + grid.padding],
        "ellipses": _packed(_stacked(frames, lambda layer: torch.cat([layer.centers, layer.covariances], 1)).float()),
        "maps": _packed(_stacked(frames, lambda layer: layer.maps).mul(255).round().to(torch.uint8)),
        "nonlocality": [[round(layer.nonlocality, 3) for layer in frame] for frame in frames],
        "onePixel": [[round(layer.one_pixel, 3) for layer in frame] for frame in frames],
    }


def _stacked(frames: Any, part: Any) -> Tensor:
    return torch.stack([torch.stack([part(layer) for layer in frame]) for frame in frames])


def _packed(values: Tensor) -> str:
    """The numbers' bytes, little-endian, as text."""
    array = values.contiguous().numpy()
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")
