"""Rows of measurements, their summaries over a table, and both as tables and as a section of benchmarks/RESULTS.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from statistics import median
from typing import Any

from ...convert.size import Size, format_bytes
from ..terminal.output import Table
from ..terminal.printable import printable

UNSTEADY = 1.3
MOST_UNSTEADY = 0.1  # share of all measurements; with more, something else was running
_EMPTY = "-"


class Phase(StrEnum):
    """Timed phase."""

    forward = "forward"
    training = "forward + backward"
    conversion = "conversion"


@dataclass(frozen=True)
class Measurement:
    """One call, in all rounds."""

    seconds: tuple[float, ...]  # of one call, in each round
    ratios: tuple[float, ...]  # these seconds over those of the call it is compared with, in the same round
    peak_bytes: int  # most memory held at one time by the first call

    @property
    def ms(self) -> float:
        """Milliseconds of one call: the median over the rounds."""
        return 1e3 * median(self.seconds)

    @property
    def ratio(self) -> float:
        """Median of the ratios, which a slowdown of a whole round does not change."""
        return median(self.ratios)


@dataclass(frozen=True)
class Row:
    """Measurement of one candidate on one layer."""

    table: str
    layer: str
    geometry: str  # the layer's geometry, in words
    kind: str  # "dense", "depthwise", or "network" for a whole one
    size: Size
    batch: int  # images in a call
    count: int  # number of such layers in the network
    phase: Phase
    candidate: str
    measurement: Measurement | None = None
    reason: str | None = None
    error: float | None = None  # largest difference from the reference in float64, or None
    bound: float | None = None  # the derived bound on it, or None where there is none

    def to_json(self) -> dict[str, Any]:
        """The row as plain data, with the medians."""
        data, made = asdict(self) | {"size": list(self.size)}, self.measurement
        found = data.pop("measurement") or {"seconds": [], "ratios": [], "peak_bytes": None}
        return data | found | {"ms": made and made.ms, "ratio": made and made.ratio}


def summarise(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A summary of each candidate that was measured over each table, kind of layer and phase, in the rows' order.

    Layers count as often as the network has them; ``mean`` is the geometric mean of the ratios.
    """
    groups: dict[tuple[str, str, Phase, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.table, row.kind, row.phase, row.candidate), []).append(row)
    summaries = []
    for place, group in groups.items():
        found = [(row.measurement, row.count) for row in group if row.measurement is not None]
        if not found:
            continue
        measured = sum(count for _, count in found)
        logs = math.fsum(count * math.log(measurement.ratio) for measurement, count in found)
        errors = (row.error / row.bound for row in group if row.error is not None and row.bound)
        summary = {
            "measured": measured,
            "layers": sum(row.count for row in group),
            "mean": math.exp(logs / measured),
            "worst": max(measurement.ratio for measurement, _ in found),
            "peak_bytes": max(measurement.peak_bytes for measurement, _ in found),
            "error_over_bound": max(errors, default=None),
        }
        summaries.append(dict(zip(("table", "kind", "phase", "candidate"), place, strict=True)) | summary)
    return summaries


def steadiness(rows: Iterable[Row]) -> tuple[int, int]:
    """Number of measurements half of whose rounds took less than ``UNSTEADY`` times the fastest, and of all."""
    found = [row.measurement.seconds for row in rows if row.measurement is not None]
    return sum(median(seconds) < UNSTEADY * min(seconds) for seconds in found), len(found)


def summary_table(rows: Sequence[Row]) -> Table:
    """Geometric means and worst ratios, the largest peaks and errors."""
    names = ("table", "layers", "phase", "candidate", "measured", "mean ratio", "worst", "peak memory", "error / bound")
    lines = tuple(
        (
            *(s["table"], s["kind"], str(s["phase"]), s["candidate"], f"{s['measured']} of {s['layers']}"),
            *(f"{s['mean']:.3f}", f"{s['worst']:.3f}", format_bytes(s["peak_bytes"])),
            _EMPTY if s["error_over_bound"] is None else f"{s['error_over_bound']:.1e}",
        )
        for s in summarise(rows)
    )
    return Table(names, lines, "Ratios to the first candidate of each table")


def ratio_tables(rows: Iterable[Row]) -> Iterator[Table]:
    """One line for each layer: milliseconds of the first candidate, then every other one's ratio to it."""
    for (name, phase), part in groupby(rows, key=lambda row: (row.table, row.phase)):
        lines, names = [], []
        for layer, group in groupby(part, key=lambda row: row.layer):
            base, *others = group
            names = [base.candidate, *(row.candidate for row in others)]
            ratios = [_EMPTY if row.measurement is None else f"{row.measurement.ratio:.2f}" for row in others]
            first = _EMPTY if base.measurement is None else f"{base.measurement.ms:.2f}"
            lines.append((f"{layer}: {base.geometry}", str(base.size), str(base.count), first, *ratios))
        yield Table(("layer", "input", "count", f"{names[0]}, ms", *names[1:]), tuple(lines), f"{name}, {phase}")


def trust(rows: Sequence[Row]) -> str:
    """A sentence on whether the machine was quiet enough for the numbers to be trusted."""
    steady, measured = steadiness(rows)
    found = f"in {steady} of {measured} measurements half of the rounds took less than {UNSTEADY} times the fastest"
    if measured - steady > MOST_UNSTEADY * measured:
        return f"These numbers are unreliable, since the machine was busy: only {found}."
    return f"The machine was quiet: {found}."


def section(heading: str, lines: Iterable[str], tables: Iterable[Table]) -> str:
    """A section of benchmarks/RESULTS.md."""
    parts = [f"## {heading}", *lines]
    for table in tables:
        cells = [table.header, tuple("---" for _ in table.header), *table.rows]
        rows = (" | ".join(printable(cell).replace("|", "/") for cell in line) for line in cells)
        parts += [f"### {table.title}", "\n".join(f"| {row} |" for row in rows)]
    return "\n\n".join(parts) + "\n"
