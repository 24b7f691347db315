"""Formats a benchmark as tables for the terminal, and as a section of benchmarks/RESULTS.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ...convert.size import format_bytes
from ..terminal.output import Table
from ..terminal.printable import printable
from .results import UNSTEADY, Row, steadiness, summarise

MOST_UNSTEADY = 0.1  # share of all measurements; with more, something else was running
_EMPTY = "-"


def summary_table(rows: Sequence[Row]) -> Table:
    """Geometric means and worst ratios, the largest peaks and errors."""
    names = ("table", "layers", "phase", "candidate", "measured", "mean ratio", "worst", "peak memory", "error / bound")
    lines = tuple(
        (
            *(s.table, str(s.kind), str(s.phase), s.candidate),
            *(f"{s.measured} of {s.layers}", f"{s.mean:.3f}", f"{s.worst:.3f}", format_bytes(s.peak_bytes)),
            _EMPTY if s.error_over_bound is None else f"{s.error_over_bound:.1e}",
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
