"""Writes the page of a network and the film of a training: each one self-contained HTML file.

The page has its style, its program, its data and its table of layers in it; the film shows where every head looks after
every epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...convert.agreement.networks import Agreement
from ...convert.agreement.report import Summary
from ...convert.certificate.layer import format_bound, is_useful
from ...convert.certificate.literal import QUERIES
from ...convert.examples.images import drawn_image
from ...convert.inputs import likely_channels
from ...convert.network.report import Report
from ...learn.experiment.folder import History, LayerRecord
from ..pictures.limits import evenly
from ..text import CELL, by_note, printable, scientific, short_name
from .bundle import filled, packed
from .data import not_drawn, page_data

QUICK = 5e9  # multiply-adds: seconds, beside which a conversion is not slow
DRAWN = "an image that was drawn for this page"
CHANNELS = 4096  # of a drawn image; networks with more channels do not run on it
NUMBER, WORDS = "number", "words"
COLUMNS = (
    ("layer", WORDS),
    ("geometry", WORDS),
    ("heads", NUMBER),
    ("\u03b1", NUMBER),
    ("parameters", NUMBER),
    ("as attention", NUMBER),
    ("measured", NUMBER),
    ("worst case", NUMBER),
    ("share", NUMBER),
)


class Page(NamedTuple):
    """An HTML file's text, and notes on the layers that it does not draw, by their names."""

    text: str
    left_out: dict[str, str]


def make_page(
    model: nn.Module,
    report: Report,
    *,
    title: str,
    image: Tensor | None = None,
    seen: str = DRAWN,
    pixel: tuple[int, int] | None = None,
    only: str | None = None,
    agreement: Agreement | None = None,
    limit: float = math.inf,
    summary: Summary | None = None,
) -> Page:
    """The page of a converted network.

    Args:
        model: The converted network.
        report: The conversion report.
        title: Name of the network, for people.
        image: The network's input, [1, channels, rows, columns]; by default one is drawn.
        seen: Description of the image, as the end of a sentence.
        pixel: The first query, as a pixel of the image; by default its middle.
        only: Name of the only layer to show.
        agreement: A comparison of the network with its CNN, if one was made.
        limit: Most multiply-adds that running the network may take; a network that takes more is shown without values.
            Where there is a limit, nothing is proved for the image, which takes seconds.
        summary: The summary for the drawn image; by default it is made.

    Raises:
        SelectionError: The pixel is outside the image.
    """
    if image is None and summary is not None:
        image = summary.image
    image = drawn_image(min(likely_channels(model)[0], CHANNELS)) if image is None else image
    data = page_data(model, report, image, pixel=pixel, only=only, agreement=agreement, limit=limit, summary=summary)
    names = {"title": printable(title, CELL), "seen": printable(seen, CELL)}
    left_out = data.pop("left_out")
    text = render(data | names | {"program": f"conv2attn {version('conv2attn')}"})
    return Page(text, {name: not_drawn(reason) for name, reason in left_out.items()})


def render(data: dict[str, Any]) -> str:
    """The page of some data: names in them are text, never markup (tojson escapes what could end a script)."""
    tables = {
        "columns": COLUMNS,
        "rows": table_rows(data),
        "notes": by_note((layer["names"][0] or "the network itself", layer["note"]) for layer in data["layers"]),
        "table_caption": caption(data),
    }
    return _page("page", "viewer", data=data, **tables)


def _page(name: str, entry: str, **values: Any) -> str:
    folder = "page/static"
    styles = f"{folder}/base.css", f"{folder}/{name}.css"
    return filled(f"{folder}/{name}.html", styles=styles, entry=f"{folder}/{entry}.js", **values)


class Cell(NamedTuple):
    """The text of a cell of the table of layers, and the value to sort by; "" is unknown."""

    text: str
    value: str | int | float


def table_rows(data: dict[str, Any]) -> list[list[Cell]]:
    """The cells of all layers, in the order of ``COLUMNS``."""
    compared = {} if data["agreement"] is None else data["agreement"]["layers"]
    layers = data["layers"]
    names = [short_name(", ".join(each or "the network itself" for each in layer["names"])) for layer in layers]
    return [_row(layer, name, compared) for layer, name in zip(layers, names, strict=True)]


def caption(data: dict[str, Any]) -> str:
    """Explanation of the columns of measured differences and worst cases."""
    agreement = data["agreement"]
    if agreement is not None:
        return (
            "Measured: the largest |attention \u2212 convolution| of the layer's outputs over "
            f"{agreement['images']:,} images, in the {agreement['engine']} engine, which shares no step with "
            f"a convolution; other images and engines give other numbers. {_WORST_CASE}"
        )
    return (
        "Measured: the largest |attention \u2212 convolution| of literal attention, a softmax over all keys, at "
        f"{QUERIES} queries on {data['seen']}; other images, outputs and engines give other numbers. {_WORST_CASE}"
    )


_WORST_CASE = (
    "Worst case: the layer's certificate for any input within the ranges and sums of what it saw there, in the same "
    "engine. Share: measured / worst case."
)


def _row(layer: dict[str, Any], shown: str, compared: dict[str, Sequence[float]]) -> list[Cell]:
    name = layer["names"][0]
    here = layer.get("difference"), layer.get("bound"), layer.get("outputs")
    difference, bound, outputs = compared.get(name, here)
    useful = is_useful(bound, outputs)
    share = None if difference is None or not bound or not useful else difference / bound
    alphas = sorted(alpha for alpha in layer["alpha"] if alpha is not None)
    alpha = f"{alphas[0]:g}" if alphas[0] == alphas[-1] else f"{alphas[0]:g}\u2013{alphas[-1]:g}"
    return [
        Cell(shown, name),
        Cell(layer["geometry"], layer["geometry"]),
        Cell(f"{layer['heads']:,}", layer["heads"]),
        Cell(alpha, alphas[0]),
        Cell(f"{layer['parameters_before']:,}", layer["parameters_before"]),
        Cell(f"{layer['parameters_after']:,}", layer["parameters_after"]),
        Cell(scientific(difference), "" if difference is None else difference),
        Cell(scientific(bound) if useful else format_bound(bound, outputs), "" if bound is None else bound),
        Cell(_percent(share), "" if share is None else share),
    ]


def _percent(share: float | None) -> str:
    if share is None:
        return "\u2013"
    return "< 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


MOST_FRAMES = 101  # epochs 0 to 100; of more, as many as that, evenly, which keeps the file under 5 MB


def film_page(history: History, *, title: str) -> str:
    """The HTML text of the film of a run."""
    names = {"title": printable(title, CELL), "encoding": printable(history.encoding, CELL)}
    program = f"conv2attn {version('conv2attn')}"
    return _page("film", "film", **names, program=program, data=film_data(history))


def film_data(history: History) -> dict[str, Any]:
    """Numbers that the page draws, as packed arrays, [frames, layers, heads, ...]."""
    epochs = evenly(range(len(history.layers)), MOST_FRAMES)
    frames = [history.layers[epoch] for epoch in epochs]
    grid = history.grid

    def stacked(part: Callable[[LayerRecord], Tensor]) -> Tensor:
        return torch.stack([torch.stack([part(layer) for layer in frame]) for frame in frames])

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
        "ellipses": packed(stacked(lambda layer: torch.cat([layer.centers, layer.covariances], 1)).float()),
        "maps": packed(stacked(lambda layer: layer.maps).mul(255).round().to(torch.uint8)),
        "nonlocality": [[round(layer.nonlocality, 3) for layer in frame] for frame in frames],
        "onePixel": [[round(layer.one_pixel, 3) for layer in frame] for frame in frames],
    }
