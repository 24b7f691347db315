"""Draws the ladder: time against pixels, both logarithmic, one line for each candidate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..show.pictures.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, Sheet, drawn_in_style
from .candidates.candidates import CANDIDATES, CONVOLUTION, Candidate
from .candidates.cases import Regime
from .candidates.results import Phase, Row
from .outputs import CREATOR, LADDER
from .run import Benchmark

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


class Line(NamedTuple):
    """One candidate's times.

    Attributes:
        candidate: The candidate.
        pixels: Pixels of an image, growing.
        times: Milliseconds of a call on each of these images.
    """

    candidate: Candidate
    pixels: tuple[int, ...]
    times: tuple[float, ...]


def plot(benchmark: Benchmark) -> bytes:
    """The plot of a benchmark as the content of an SVG file; the same every time."""
    with drawn_in_style():
        return draw_ladder(benchmark).save("svg", creator=CREATOR)


def draw_ladder(benchmark: Benchmark) -> Sheet:
    """The forward times of the table ``LADDER``, which must have been measured."""
    rows = [row for row in benchmark.rows if row.table == LADDER and row.phase is Phase.forward]
    title = f"Attention beside its convolution: {rows[0].geometry}, batch {rows[0].batch}"
    caption = f"{_CAPTION} {benchmark.settings.to_json()['dtype']}, {benchmark.machine}."
    sheet = Sheet(_WIDTH + 0.8 + _NAMES, _HEIGHT + 0.6, title=title, caption=caption)
    axes = sheet.axes(0.7, 0.05, _WIDTH, _HEIGHT)
    axes.set(xscale="log", yscale="log", xlabel="pixels of an image", ylabel="milliseconds of a call")
    for line in lines_of(rows):
        _draw(axes, line)
    sizes = sorted({row.size for row in rows}, key=math.prod)
    axes.set_xticks([math.prod(size) for size in sizes], [f"{math.prod(size):,}\n{size}" for size in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(color=FAINT, linewidth=0.4)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(handles=_slowest_first(axes.lines), loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3.2)
    return sheet


def lines_of(rows: Iterable[Row]) -> list[Line]:
    """The line of each candidate that was measured at all."""
    rows, lines = list(rows), []
    for candidate in CANDIDATES:
        found = [(row.size, row.measurement) for row in rows if row.candidate == candidate.name]
        points = sorted((math.prod(size), measured.ms) for size, measured in found if measured is not None)
        if points:
            pixels, times = zip(*points, strict=True)
            lines.append(Line(candidate, pixels, times))
    return lines


def _draw(axes: Any, line: Line) -> None:
    """Draws a line; the convolution's is broad, so that it is seen on both sides of one that covers it."""
    method, regime = line.candidate.method, line.candidate.regime
    style = {"linewidth": 4.5, "alpha": 0.35} if method == CONVOLUTION else {"linewidth": 1.3}
    axes.plot(
        *(line.pixels, line.times),
        label=line.candidate.name,
        color=_COLOURS.get(method, GREY),
        linestyle=_STYLES[regime],
        marker="o",
        markersize=2.6,
        **style,
    )


def _slowest_first(lines: Iterable[Any]) -> list[Any]:
    """Sorts drawn lines by their last times; those that end early, because a limit is reached, are the slowest."""
    return sorted(lines, key=lambda line: (line.get_xdata()[-1], -line.get_ydata()[-1]))
