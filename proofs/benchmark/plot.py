"""Draws the ladder: time against pixels, both logarithmic, one line for each candidate.

The colour tells the method and the dashes the regime. Colours are those of Okabe and Ito, which colour-blind people
can tell apart, lighter where the reader's background is dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from .candidates.candidates import CANDIDATES, CONVOLUTION, Candidate
from .candidates.cases import Regime
from .candidates.results import Phase, Row
from .run import Benchmark
from .svg import Scale, dotted_path, line, spread, text

TABLE = "ladder"

_WIDTH, _HEIGHT = 900, 580
BEGINNING = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'  # of every plot
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 720, 96, 500  # of the frame
_LABEL = 15  # between labels, in pixels
_LINE_WIDTH, _BASE_WIDTH = 2, 5  # the convolution is seen on both sides of a line that covers it
_INK = ("#1a1a1a", "#eeeeee")
_COLOURS = {  # on a light and on a dark background
    CONVOLUTION: _INK,
    "factored": ("#0072b2", "#56b4e9"),
    "separable": ("#d55e00", "#f0a030"),
    "literal": ("#aa4488", "#dd99c4"),
    "SDPA": ("#00805e", "#2fc39b"),
    "sdpa": ("#8a7a00", "#d9c84a"),
}
_OTHER = ("#777777", "#aaaaaa")
_DASHES = {Regime.exact: "none", Regime.soft: "8 4", Regime.free: "2 4"}
_REGIMES = {
    Regime.exact: "exact: attention is one-hot",
    Regime.soft: "soft: alpha 2",
    Regime.free: "free: real centres, alpha of each head's own",
}


@dataclass(frozen=True)
class Line:
    """One candidate's times.

    Attributes:
        candidate: Whose.
        points: Pixels and milliseconds, by growing pixels.
    """

    candidate: Candidate
    points: tuple[tuple[int, float], ...]


def draw(benchmark: Benchmark) -> str:
    """The plot as an SVG document."""
    rows = [row for row in benchmark.rows if row.table == TABLE and row.phase is Phase.forward]
    lines = lines_of(rows)
    sizes = sorted({row.size for row in rows}, key=math.prod)
    times = [ms for measured in lines for _, ms in measured.points] or [1.0]
    decades = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    low, high = decades[0], max(decades[1], decades[0] + 1)
    x = Scale(math.prod(sizes[0]) / 1.3, math.prod(sizes[-1]) * 1.3, _LEFT, _RIGHT)
    y = Scale(10.0**low, 10.0**high, _BOTTOM, _TOP)
    batch = rows[0].batch
    parts = [
        BEGINNING,
        f"<title>Time of a convolution and of its attention against image size, batch {batch}</title>",
        f"<style>{_style()}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>',
        *_heading(benchmark, rows[0].geometry, batch),
        *(_tick(x(math.prod(size)), f"{math.prod(size):,}", str(size)) for size in sizes),
        *(_grid(y(10.0**power), 10.0**power) for power in range(low, high + 1)),
        text((_LEFT + _RIGHT) / 2, _HEIGHT - 14, "pixels of one image (logarithmic)", anchor="middle"),
        text(22, (_TOP + _BOTTOM) / 2, "milliseconds a call (logarithmic)", anchor="middle", turned=True),
        *(_drawn(measured, x, y) for measured in lines),
        *_labels(lines, x, y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def lines_of(rows: Iterable[Row]) -> list[Line]:
    """The measured points of each candidate that has any."""
    rows, lines = list(rows), []
    for candidate in CANDIDATES:
        found = [(row.size, row.measurement) for row in rows if row.candidate == candidate.name]
        points = sorted((math.prod(size), m.ms) for size, m in found if m is not None)
        if points:
            lines.append(Line(candidate, tuple(points)))
    return lines


def _style() -> str:
    """Colours for light backgrounds, and others where the reader prefers dark ones."""
    light, dark = (
        "".join(
            f".{_class(name)}{{stroke:{colours[shade]}}}text.{_class(name)},circle.{_class(name)}"
            f"{{fill:{colours[shade]};stroke:none}}"
            for name, colours in (_COLOURS | {"other": _OTHER}).items()
        )
        + f"text{{fill:{_INK[shade]}}}.paper{{fill:{('#ffffff', '#16181c')[shade]}}}"
        f".grid{{stroke:{('#dddddd', '#3a3d44')[shade]}}}.leader{{stroke:{_OTHER[shade]}}}"
        for shade in (0, 1)
    )
    letters = "text{font:13px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.small{font-size:12px}"
    return f"polyline,line{{fill:none}}{letters}{light}" + (f"@media (prefers-color-scheme:dark){{{dark}}}")


def _class(method: str) -> str:
    known = method if method in _COLOURS else "other"
    return "m-" + "".join(letter for letter in known if letter.isalnum())


def _heading(benchmark: Benchmark, geometry: str, batch: int) -> list[str]:
    """The title, what was measured where, and the legend of dashes."""
    settings = benchmark.settings.to_json()
    title = f"Attention beside its convolution: {geometry}, batch {batch}, {settings['dtype']}"
    parts = [text(_LEFT, 26, title, css="title"), text(_LEFT, 46, str(benchmark.machine), css="small")]
    x = float(_LEFT)
    for regime, words in _REGIMES.items():
        parts.append(line((x, 68), (x + 34, 68), css=_class(CONVOLUTION), width=_LINE_WIDTH, dash=_DASHES[regime]))
        parts.append(text(x + 42, 72, words, css="small"))
        x += 70 + 6.3 * len(words)
    return parts


def _tick(x: float, pixels: str, size: str) -> str:
    labels = text(x, _BOTTOM + 20, pixels, anchor="middle") + text(x, _BOTTOM + 38, size, anchor="middle", css="small")
    return line((x, _TOP), (x, _BOTTOM), css="grid") + labels


def _grid(y: float, ms: float) -> str:
    return line((_LEFT, y), (_RIGHT, y), css="grid") + text(_LEFT - 8, y + 4, f"{ms:,g}", anchor="end")


def _drawn(measured: Line, x: Scale, y: Scale) -> str:
    """The line, with a dot at each measured point."""
    candidate = measured.candidate
    width = _BASE_WIDTH if candidate.method == CONVOLUTION else _LINE_WIDTH
    places = [(x(pixels), y(ms)) for pixels, ms in measured.points]
    path = dotted_path(places, css=_class(candidate.method), width=width, dash=_DASHES[candidate.regime])
    return f"<g><title>{escape(candidate.name)}</title>{path}</g>"


def _labels(lines: Sequence[Line], x: Scale, y: Scale) -> list[str]:
    """Each line's name beside its last point; names that would overlap are moved apart and led to their points."""
    ends: dict[int, list[tuple[float, Candidate]]] = {}
    for measured in lines:
        pixels, ms = measured.points[-1]
        ends.setdefault(pixels, []).append((y(ms), measured.candidate))
    parts = []
    for pixels, found in ends.items():
        last = sorted(found, key=lambda item: item[0])
        end = x(pixels)
        for (place, candidate), moved in zip(last, spread([place for place, _ in last], _LABEL), strict=True):
            parts.append(line((end + 4, place), (end + 18, moved), css="leader"))
            parts.append(text(end + 22, moved + 4, candidate.name, css=_class(candidate.method)))
    return parts
