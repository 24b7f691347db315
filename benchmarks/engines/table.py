"""The tables of benchmarks/ENGINES.md: what was said of each engine, and which planted bugs were found by what."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.engines.faults import TIMES

PAGE = Path(__file__).parents[1] / "ENGINES.md"
Line = dict[str, Any]
MARKS = "<!-- {}: the runner writes it -->", "<!-- the end of {} -->"
HONEST = (
    "| engine | in | network | float32's | unit | of it | coherent | constant | rest | verdict | recorded in | of it | "
    "verdict | biased |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
PLANTED = "| engine | in | network | bug | 1 | 3 | 10 | 30 |\n| --- | --- | --- | --- | --- | --- | --- | --- |"


def rewritten(page: str, lines: list[Line]) -> str:
    """A page with its tables written again.

    Args:
        page: The page, which has marks around both.
        lines: Of JSON, as the runner writes them.
    """
    ran = [one for one in lines if "verdict" in one]
    honest, faulty = ([one for one in ran if bool(one["fault"]) is is_planted] for is_planted in (False, True))
    told = "\n".join(why_not(one for one in lines if "verdict" not in one and not one["fault"]))
    page = between(page, "engines", "\n".join([HONEST, *map(row, sorted(honest, key=_place))]) + f"\n\n{told}")
    return between(page, "bugs", "\n".join([PLANTED, *planted_rows(faulty)]))


def between(page: str, name: str, text: str) -> str:
    """A page with another text between the marks of this name."""
    start, end = (re.escape(mark.format(name)) for mark in MARKS)
    found = re.search(f"({start}\n).*(\n{end})", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no marks for {name}")
    return page[: found.end(1)] + f"\n{text}\n" + page[found.start(2) :]


def row(line: Line) -> str:
    """A row of the table of engines."""
    averaged, declared = line["averaged"] or {}, line["declared"]
    unit = line["unit"] if line["unit"] in ("", declared) else f"{line['unit']} ({declared} was declared)"
    constant = f"{averaged['constant']:.2f}" if averaged else ""
    inside = ("", "", line["values"], "")
    if "inside_verdict" in line:
        inside = line["recorded_in"], _ratio(line["inside_ratio"]), line["inside_verdict"], str(len(line["bias"]))
    cells = (
        f"{line['engine']} {line['version']}",
        line["way"] + (", emulated" if line["engine"] == "emulated" else ""),
        line["network"],
        _ratio(line["ratio"]),
        unit,
        _ratio(line["unit_ratio"]),
        f"{averaged['share']:.2f} (at most {averaged['high']:.2f})" if averaged else "",
        constant + (f" (at most {averaged['weights_99']:.2f})" if averaged and averaged["weights_99"] else ""),
        f"{averaged['rest']:.2f}" if averaged else "",
        line["verdict"],
        *inside,
    )
    return "| " + " | ".join(cells) + " |"


def _ratio(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _place(line: Line) -> tuple[str, ...]:
    return line["engine"], line["way"], line["network"]


def why_not(lines: Iterable[Line]) -> Iterator[str]:
    """A sentence for each reason why configurations could not be run."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for line in lines:
        ways = found.setdefault((f"{line['engine']} {line['version']}", line["why_not"]), {})
        ways.setdefault(line["network"], []).append(line["way"])
    for (engine, why), ways in found.items():
        where = {", ".join(each) for each in ways.values()}
        yield f"- {engine}, {'; '.join(sorted(where))} ({', '.join(ways)}): {why}."


def found_by(line: Line) -> str:
    """How a planted bug was found: by its size, by averages, or not, with the verdict and its ratio."""
    if line["verdict"] == "not rounding":
        return "size" if line["averaged"] is None else "averages"
    if line["verdict"] == "rounding" and "does not average out" in line["report"]:
        return "averages, a note"
    if line["verdict"] == "cannot say":
        return "cannot say"
    return f"- ({_ratio(line['unit_ratio'])} of {line['unit']})"


def planted_rows(lines: list[Line]) -> Iterator[str]:
    """Rows of the table of bugs; a cell is empty where the bug cannot be so large."""

    def key(line: Line) -> tuple[str, ...]:
        return line["engine"], line["way"], line["network"], line["fault"]

    for about, group in itertools.groupby(sorted(lines, key=key), key):
        cells = {line["times"]: found_by(line) for line in group}
        yield "| " + " | ".join([*about, *(cells.get(times, "") for times in TIMES)]) + " |"
