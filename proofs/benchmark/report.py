"""Puts a benchmark into tables for people, and into the section that benchmarks/RESULTS.md keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ...convert.size import format_bytes
from ..terminal.printable import printable
from ..terminal.table import Table
from .criteria import Criterion
from .results import MOST_UNSTEADY, UNSTEADY, Row, Summary, steadiness

_EMPTY = "-"


def layer_tables(rows: Iterable[Row]) -> Iterator[Table]:
    """One table for each table of layers and phase, with every candidate on every layer."""
    columns = ("geometry", "input", "candidate", "ms", "ratio", "peak memory", "max error / bound")
    for (name, phase), part in groupby(rows, key=lambda row: (row.table, row.phase)):
        found = list(part)
        title = f"{name}, {phase}, batch {found[0].batch}"
        lines = []
        for _, group in groupby(found, key=lambda row: row.layer):
            for number, row in enumerate(group):
                place = ("", "", "") if number else (row.layer, row.geometry, str(row.size))
                lines.append((*place, row.candidate, *_numbers(row)))
        yield Table((title, *columns), tuple(lines), title)


def _numbers(row: Row) -> tuple[str, ...]:
    found = row.measurement
    if found is None:
        return (_EMPTY, _EMPTY, _EMPTY, row.reason or "")
    error = _EMPTY if row.error is None else f"{row.error:.1e}" + ("" if row.bound is None else f" / {row.bound:.1e}")
    return (f"{found.ms:.3f}", f"{found.ratio:.3f}", format_bytes(found.peak_bytes), error)


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Geometric means and worst ratios."""
    names = ("table", "layers", "phase", "candidate", "measured", "mean ratio", "worst", "peak memory", "error / bound")
    lines = [
        (
            *(s.table, str(s.kind), str(s.phase), s.candidate),
            *(f"{s.measured} of {s.layers}", f"{s.mean:.3f}", f"{s.worst:.3f}", format_bytes(s.peak_bytes)),
            _EMPTY if s.error_over_bound is None else f"{s.error_over_bound:.1e}",
        )
        for s in summaries
    ]
    return Table(names, tuple(lines), "Ratios to the first candidate of each table")


def criteria_table(criteria: Sequence[Criterion]) -> Table:
    """What must hold, and whether it does."""
    return Table(("must hold", "target", "measured", "verdict"), tuple(c.cells() for c in criteria), "Must hold")


def ratio_tables(rows: Iterable[Row]) -> Iterator[Table]:
    """One line for each layer: milliseconds of the first candidate, then every other one's ratio to it."""
    for (name, phase), part in groupby(rows, key=lambda row: (row.table, row.phase)):
        lines, names = [], []
        for layer, group in groupby(part, key=lambda row: row.layer):
            found = list(group)
            names = [row.candidate for row in found]
            base, *others = found
            place = (f"{layer}: {base.geometry}", str(base.size), str(base.count))
            ratios = [_EMPTY if row.measurement is None else f"{row.measurement.ratio:.2f}" for row in others]
            lines.append((*place, _EMPTY if base.measurement is None else f"{base.measurement.ms:.2f}", *ratios))
        header = ("layer", "input", "count", f"{names[0]}, ms", *names[1:])
        yield Table(header, tuple(lines), f"{name}, {phase}")


def trust(rows: Sequence[Row]) -> str:
    """Whether the machine was quiet enough to believe the numbers, in words."""
    steady, measured = steadiness(rows)
    found = f"in {steady} of {measured} measurements half of the rounds took less than {UNSTEADY} times the fastest"
    if measured - steady > MOST_UNSTEADY * measured:
        return f"Do not believe these numbers, the machine was busy: only {found}."
    return f"The machine was quiet: {found}."


def section(heading: str, lines: Iterable[str], tables: Iterable[Table]) -> str:
    """A section of benchmarks/RESULTS.md."""
    parts = [f"## {heading}", *lines]
    for table in tables:
        parts += [f"### {table.title}", _markdown_table(table)]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    lines = [table.header, tuple("---" for _ in table.header), *table.rows]
    return "\n".join(f"| {' | '.join(printable(cell).replace('|', '/') for cell in line)} |" for line in lines)
