"""The few pieces of SVG that a plot is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


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


def text(x: float, y: float, words: str, *, anchor: str = "start", css: str = "", turned: bool = False) -> str:
    """Words at a place, perhaps turned to read upwards."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(words)}</text>'


def line(
    start: tuple[float, float], stop: tuple[float, float], *, css: str, width: float = 1, dash: str = "none"
) -> str:
    """A straight line."""
    places = "".join(f' {n}{i}="{v:.1f}"' for i, end in ((1, start), (2, stop)) for n, v in zip("xy", end, strict=True))
    return f'<line class="{css}"{places} stroke-width="{width}" stroke-dasharray="{dash}"/>'


def dotted_path(places: Sequence[tuple[float, float]], *, css: str, width: float, dash: str) -> str:
    """Straight lines from place to place, with a dot at each."""
    dots = "".join(f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="{css}" points="{points}" stroke-width="{width}" stroke-dasharray="{dash}"/>{dots}'


def spread(places: Sequence[float], distance: float) -> list[float]:
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
