"""What every network encodes, its parameters and its accuracy (the draft's Tables 1 and 2, for what was run)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....learn.experiment.results import Line
from ..pictures.style import GREY, Sheet

HEADER = ("network", "positions", "content", "parameters", "seeds", "test accuracy", "worst seed")
_POSITIONS = {
    "quadratic": "relative, isotropic",
    "gaussian": "relative, any Gaussian",
    "learned": "relative, tables",
    "sinusoidal": "relative, sinusoids",
    "absolute": "absolute, sinusoids",
}
TYPES = ("sinusoids", "learned", "quadratic", "relative", "content")
"""Columns of the draft's Table 1, and whether heads look at the image."""
_TYPES = {
    "quadratic": {"quadratic", "relative"},
    "gaussian": {"quadratic", "relative"},
    "learned": {"learned", "relative"},
    "sinusoidal": {"sinusoids", "relative"},
    "absolute": {"sinusoids"},
}
_MARK = "\u2713"
_COLUMNS = ("network", *TYPES, *HEADER[3:])
_PLACES = (0.15, 1.65, 2.3, 2.95, 3.55, 4.15, 5.2, 5.75, 6.85, 7.7)  # inches: the first a left end, then middles of the
_MIDDLES = range(1, 1 + len(TYPES))  # columns with marks, then right ends
_WIDTH, _ROW = 7.85, 0.21


def table_rows(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """The texts of the rows, under ``HEADER``."""
    return [_row(line) for line in lines]


def _row(line: Line) -> tuple[str, ...]:
    base, _, content = line.encoding.partition("+")
    deviation = "" if math.isnan(line.deviation) else f" \u00b1 {100 * line.deviation:.1f}"
    return (
        line.encoding,
        _POSITIONS.get(base, "convolution"),
        "yes" if content else "no",
        f"{line.parameters:,}",
        str(line.seeds),
        f"{100 * line.mean:.1f}{deviation} %",
        f"{100 * line.lowest:.1f} %",
    )


def marks(encoding: str) -> tuple[str, ...]:
    """A mark, or nothing, under each of ``TYPES``."""
    base, _, content = encoding.partition("+")
    own = _TYPES.get(base, set()) | {content}
    return tuple(_MARK if name in own else "" for name in TYPES)


def draw_table(lines: Sequence[Line], *, data: str) -> Sheet:
    """The table as a picture."""
    rows = [(row[0], *marks(row[0]), *row[3:]) for row in table_rows(lines)]
    sheet = Sheet(
        _WIDTH,
        _ROW * (len(rows) + 1) + 0.15,
        title=f"Encodings, parameters and accuracy on {data}",
        caption=(
            "Accuracy on the test images, which each network saw once, after its best epoch on the validation images: "
            "mean \u00b1 standard deviation over the seeds. Types of encoding as in Table 1 of the draft, where "
            "Vaswani et al. (2017) have sinusoids; Dai et al. and Yang et al. (2019) relative ones; Radford et al. and "
            "Devlin et al. (2018) learned ones; Bello et al. and Ramachandran et al. (2019) learned, relative ones, "
            "all of them with content. Residual networks have no encoding."
        ),
    )
    for number, row in enumerate((_COLUMNS, *rows)):
        for column, (place, words) in enumerate(zip(_PLACES, row, strict=True)):
            side = "center" if column in _MIDDLES else "right" if column else "left"
            style = {"size": 7.5, "va": "top", "ha": side, "weight": "normal" if number else "bold"}
            sheet.write(place, 0.05 + _ROW * number, words, **style)
    axes = sheet.axes(0.15, _ROW, _WIDTH - 0.3, 0.001)
    axes.axis("off")
    axes.axhline(0.5, color=GREY, linewidth=0.6, clip_on=False)
    return sheet
