"""Renders the page: one self-contained HTML file with its style, its program and its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from torch import Tensor, nn

from ....convert.examples.drawn import drawn_image
from ....convert.files.summary import Summary
from ....convert.inputs import likely_channels
from ....convert.model.report import Report
from ...evidence.agreement import Agreement
from ...terminal.printable import CELL, printable, scientific
from .data import not_drawn, page_data
from .table import COLUMNS, caption, layers_by_note, table_rows

QUICK = 5e9  # multiply-adds: seconds, beside which a conversion is not slow
DRAWN = "an image that was drawn for this page"
CHANNELS = 4096  # of a drawn image; networks with more channels do not run on it
SCRIPTS = ("attention.js", "words.js", "panels.js", "chart.js", "table.js", "viewer.js")  # each uses those before it
_FOLDER = "static"


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
        "notes": layers_by_note(data),
        "table_caption": caption(data),
    }
    return filled("page", SCRIPTS, data=data, **tables)


def filled(name: str, scripts: Sequence[str], **values: Any) -> str:
    """Fills the template NAME.html in the folder ``static``, and inlines its scripts and NAME.css."""
    environment = Environment(
        loader=PackageLoader(str(__package__), _FOLDER),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["scientific"] = scientific
    own = [Markup((files(str(__package__)) / _FOLDER / file).read_text("utf-8")) for file in (f"{name}.css", *scripts)]
    return environment.get_template(f"{name}.html").render(style=own[0], scripts=own[1:], **values)
