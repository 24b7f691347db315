"""Renders the film of a training, where every head looks after every epoch, as one self-contained HTML file."""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from ....learn.experiment.history import History
from ...terminal.printable import CELL, printable
from ..pictures.limits import evenly
from .write import filled

MOST_FRAMES = 101  # epochs 0 to 100; of more, as many as that, evenly, which keeps the file under 5 MB
_SCRIPTS = ("frames.js", "draw.js", "film.js")  # each uses those before it


def film_page(history: History, *, title: str) -> str:
    """The HTML text of the film of a run."""
    names = {"title": printable(title, CELL), "encoding": printable(history.encoding, CELL)}
    program = f"conv2attn {version('conv2attn')}"
    return filled("film", _SCRIPTS, **names, program=program, data=film_data(history))


def film_data(history: History) -> dict[str, Any]:
    """Numbers that the page draws, as packed arrays, [frames, layers, heads, ...]."""
    epochs = evenly(range(len(history.layers)), MOST_FRAMES)
    frames = [history.layers[epoch] for epoch in epochs]
    grid = history.grid

    def packed(part: Callable[[Any], Tensor], dtype: torch.dtype, scale: float = 1.0) -> str:
        """A part of every layer of every frame, as the little-endian bytes of its numbers in text."""
        stacked = torch.stack([torch.stack([part(layer) for layer in frame]) for frame in frames])
        array = (stacked if scale == 1 else stacked.mul(scale).round()).to(dtype).contiguous().numpy()
        return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")

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
        "ellipses": packed(lambda layer: torch.cat([layer.centers, layer.covariances], 1), torch.float32),
        "maps": packed(lambda layer: layer.maps, torch.uint8, scale=255),
        "nonlocality": [[round(layer.nonlocality, 3) for layer in frame] for frame in frames],
        "onePixel": [[round(layer.one_pixel, 3) for layer in frame] for frame in frames],
    }
