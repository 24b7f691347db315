"""Draws the ladder: time against pixels, both logarithmic, one line for each candidate.

The colour tells the method and the dashes the regime. Colours are those of Okabe and Ito, which colour-blind people
can tell apart, lighter where the reader's background is dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from conv2attn.proofs.benchmark.candidates import CANDIDATES, CONVOLUTION, Candidate
from conv2attn.proofs.benchmark.cases import Regime
from conv2attn.proofs.benchmark.results import Phase, Row
from conv2attn.proofs.benchmark.run import Benchmark

TABLE = "ladder"

_WIDTH, _HEIGHT = 900, 580
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


@dataclass(frozen=True)
class Scale:
    """Puts numbers on a logarithmic axis from pixel ``start`` (at ``low``) to pixel ``stop`` (at ``high``)."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, number: float) -> float:
        """The place of a number on the axis."""
        share = math.log(number / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.stop - self.start)


def draw(benchmark: Benchmark) -> str:
    """The plot as an SVG document."""
    rows = [row for row in benchmark.rows if row.table == TABLE and row.phase is Phase.forward]
    lines = lines_of(rows)
    sizes = sorted({row.size for row in rows}, key=math.prod)
    times = [ms for line in lines for _, ms in line.points] or [1.0]
    decades = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    low, high = decades[0], max(decades[1], decades[0] + 1)
    x = Scale(math.prod(sizes[0]) / 1.3, math.prod(sizes[-1]) * 1.3, _LEFT, _RIGHT)
    y = Scale(10.0**low, 10.0**high, _BOTTOM, _TOP)
    batch = rows[0].batch
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>Time of a convolution and of its attention against image size, batch {batch}</title>",
        f"<style>{_style()}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>',
        *_heading(benchmark, rows[0].geometry, batch),
        *(_tick(x(math.prod(size)), f"{math.prod(size):,}", str(size)) for size in sizes),
        *(_grid(y(10.0**power), 10.0**power) for power in range(low, high + 1)),
        _text((_LEFT + _RIGHT) / 2, _HEIGHT - 14, "pixels of one image (logarithmic)", "middle"),
        f'<text x="22" y="{(_TOP + _BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 22 {(_TOP + _BOTTOM) / 2})">milliseconds a call (logarithmic)</text>',
        *(_polyline(line, x, y) for line in lines),
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
    text = "text{font:13px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.small{font-size:12px}"
    return f"polyline,line{{fill:none}}{text}{light}" + (f"@media (prefers-color-scheme:dark){{{dark}}}")


def _class(method: str) -> str:
    known = method if method in _COLOURS else "other"
    return "m-" + "".join(letter for letter in known if letter.isalnum())


def _heading(benchmark: Benchmark, geometry: str, batch: int) -> list[str]:
    """The title, what was measured where, and the legend of dashes."""
    settings = benchmark.settings.to_json()
    title = f"Attention beside its convolution: {geometry}, batch {batch}, {settings['dtype']}"
    parts = [_text(_LEFT, 26, title, css="title"), _text(_LEFT, 46, str(benchmark.machine), css="small")]
    place = float(_LEFT)
    for regime, words in _REGIMES.items():
        dashes = f'stroke-dasharray="{_DASHES[regime]}"'
        parts.append(
            f'<line class="{_class(CONVOLUTION)}" x1="{place}" y1="68" x2="{place + 34}" y2="68" stroke-width="2" {dashes}/>'
        )
        parts.append(_text(place + 42, 72, words, css="small"))
        place += 70 + 6.3 * len(words)
    return parts


def _tick(x: float, pixels: str, size: str) -> str:
    line = f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_BOTTOM}"/>'
    return line + _text(x, _BOTTOM + 20, pixels, "middle") + _text(x, _BOTTOM + 38, size, "middle", "small")


def _grid(y: float, ms: float) -> str:
    line = f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>'
    return line + _text(_LEFT - 8, y + 4, f"{ms:,g}", "end")


def _polyline(line: Line, x: Scale, y: Scale) -> str:
    """The line, with a dot at each measured point."""
    places = [(x(pixels), y(ms)) for pixels, ms in line.points]
    css, name = _class(line.candidate.method), escape(line.candidate.name)
    dots = "".join(f'<circle class="{css}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in places)
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    dashes = _DASHES[line.candidate.regime]
    width = _BASE_WIDTH if line.candidate.method == CONVOLUTION else _LINE_WIDTH
    return f'<g id="{name}"><polyline class="{css}" stroke-width="{width}" points="{points}" stroke-dasharray="{dashes}"/>{dots}</g>'


def _labels(lines: Sequence[Line], x: Scale, y: Scale) -> list[str]:
    """Each line's name beside its last point; names that would overlap are moved apart and led to their points."""
    ends = sorted(
        ((x(p[-1][0]), y(p[-1][1]), line.candidate) for line in lines for p in [line.points]), key=lambda e: e[:2]
    )
    parts = []
    for end, group in groupby(ends, key=lambda item: item[0]):
        last = [(py, candidate) for _, py, candidate in group]
        for (py, candidate), place in zip(last, spread([py for py, _ in last]), strict=True):
            parts.append(
                f'<line class="leader" x1="{end + 4:.1f}" y1="{py:.1f}" x2="{end + 18:.1f}" y2="{place:.1f}"/>'
            )
            parts.append(_text(end + 22, place + 4, candidate.name, css=_class(candidate.method)))
    return parts


def spread(places: Sequence[float], distance: float = _LABEL) -> list[float]:
    """Moves sorted places apart, as little as keeps them in order and at least ``distance`` from one another."""
    groups: list[list[float]] = []  # places that touch, as their wanted positions
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _start(groups[-1], distance) < _start(groups[-2], distance) + distance * len(
            groups[-2]
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_start(group, distance) + distance * number for group in groups for number in range(len(group))]


def _start(group: Sequence[float], distance: float) -> float:
    """Where the first of touching labels goes, so that they lie around the middle of where they want to be."""
    return sum(group) / len(group) - distance * (len(group) - 1) / 2


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
