"""Draws the ladder: time against pixels, both logarithmic, one line for each candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..show.pictures.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, Sheet, drawn_in_style
from .candidates import CANDIDATES, CONVOLUTION, Candidate
from .cases import Regime
from .results import Phase, Row
from .run import CREATOR, Benchmark
from .tables import LADDER

_WIDTH, _HEIGHT, _NAMES = 5.2, 3.9, 1.5  # inches: the axes, and the names to their right
_COLOURS = {
    CONVOLUTION: INK,
    "factored": BLUE,
    "separable": VERMILION,
    "literal": PURPLE,
    "SDPA": GREEN,
    "sdpa": ORANGE,
}
_STYLES = {Regime.exact: "-", Regime.soft: "--", Regime.free: ":"}
_CAPTION = (
    "A colour for each method. Solid: exact, attention is one-hot. Dashed: soft, alpha 2. Dotted: free, real centres "
    "and an alpha of each head's own. Names are listed from slow to fast."
)


def plot_ladder(benchmark: Benchmark) -> bytes:
    """The plot of a benchmark as the content of an SVG file; the same every time."""
    with drawn_in_style():
        return draw_ladder(benchmark).save("svg", creator=CREATOR)


def draw_ladder(benchmark: Benchmark) -> Sheet:
    """The forward times of the table ``LADDER``, which must have been measured."""
    rows = [row for row in benchmark.rows if row.table == LADDER and row.phase is Phase.forward]
    title = f"Attention beside its convolution: {rows[0].geometry}, batch {rows[0].batch}"
    caption = f"{_CAPTION} {benchmark.settings.to_json()['dtype']}, {benchmark.place}."
    sheet = Sheet(_WIDTH + 0.8 + _NAMES, _HEIGHT + 0.6, title=title, caption=caption)
    axes = sheet.axes(0.7, 0.05, _WIDTH, _HEIGHT)
    axes.set(xscale="log", yscale="log", xlabel="pixels of an image", ylabel="milliseconds of a call")
    for candidate in CANDIDATES:
        _draw(axes, candidate, rows)
    sizes = sorted({row.size for row in rows}, key=math.prod)
    axes.set_xticks([math.prod(size) for size in sizes], [f"{math.prod(size):,}\n{size}" for size in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(color=FAINT, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    # From slow to fast by their last times; lines that end early, because a limit is reached, are the slowest.
    lines = sorted(axes.lines, key=lambda line: (line.get_xdata()[-1], -line.get_ydata()[-1]))
    axes.legend(handles=lines, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3.2)
    return sheet


def _draw(axes: Any, candidate: Candidate, rows: Sequence[Row]) -> None:
    """Draws the line of a candidate, if it was measured at all.

    The convolution's is broad, so that it is seen on both sides of one that covers it.
    """
    found = [(row.size, row.measurement) for row in rows if row.candidate == candidate.name]
    points = sorted((math.prod(size), measured.ms) for size, measured in found if measured is not None)
    if not points:
        return
    style = {"linewidth": 4.5, "alpha": 0.35} if candidate.method == CONVOLUTION else {"linewidth": 1.3}
    axes.plot(
        *zip(*points, strict=True),
        label=candidate.name,
        color=_COLOURS.get(candidate.method, GREY),
        linestyle=_STYLES[candidate.regime],
        marker="o",
        markersize=2.6,
        **style,
    )
