"""Parameters and accuracy of every network (the draft's Table 2, and what it leaves out)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....learn.experiment.results import Line
from ..pictures.style import GREY, Sheet

HEADER = ("network", "positions", "content", "parameters", "seeds", "test accuracy", "worst seed")
_PLACES = (0.15, 1.45, 2.75, 3.95, 4.6, 5.75, 6.65)  # inches; the first three are left ends, the others right ends
_WIDTH, _ROW = 6.8, 0.21
_POSITIONS = {
    "quadratic": "relative, isotropic",
    "gaussian": "relative, any Gaussian",
    "learned": "relative, tables",
    "sinusoidal": "relative, sinusoids",
    "absolute": "absolute, sinusoids",
}


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


def draw_table(lines: Sequence[Line], *, data: str) -> Sheet:
    """The table as a picture."""
    rows = table_rows(lines)
    sheet = Sheet(
        _WIDTH,
        _ROW * (len(rows) + 1) + 0.15,
        title=f"Parameters and accuracy on {data}",
        caption=(
            "Accuracy on the test images, which each network saw once, after its best epoch on the validation images: "
            "mean \u00b1 standard deviation over the seeds."
        ),
    )
    for number, row in enumerate((HEADER, *rows)):
        for column, (place, words) in enumerate(zip(_PLACES, row, strict=True)):
            side = "left" if column < 3 else "right"
            style = {"size": 7.5, "va": "top", "ha": side, "weight": "normal" if number else "bold"}
            sheet.write(place, 0.05 + _ROW * number, words, **style)
    axes = sheet.axes(0.15, _ROW, _WIDTH - 0.3, 0.001)
    axes.axis("off")
    axes.axhline(0.5, color=GREY, linewidth=0.6)
    return sheet
