"""The tables of benchmarks/ENGINES.md: what was said of each engine, and which planted bugs were found by what."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from conv2attn.convert.sameness.verdict import THRESHOLD

Line = dict[str, Any]
MARKS = "<!-- {}: the runner writes it -->", "<!-- the end of {} -->"
HONEST = (
    "| engine | in | network | float32's | unit found | of it | coherent | constant | signed | verdict | seconds |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
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
    page = _between(page, "engines", "\n".join([HONEST, *map(row, sorted(honest, key=_place))]) + f"\n\n{told}")
    return _between(page, "bugs", "\n".join([PLANTED, *planted_rows(faulty)]))


def _between(page: str, name: str, text: str) -> str:
    start, end = (re.escape(mark.format(name)) for mark in MARKS)
    found = re.search(f"({start}\n).*(\n{end})", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no marks for {name}")
    return page[: found.end(1)] + f"\n{text}\n" + page[found.start(2) :]


def row(line: Line) -> str:
    """A row of the table of engines."""
    is_own = line["unit"] == line["declared"]
    cells = (
        f"{line['engine']} {line['version']}",
        line["way"] + (", emulated" if line["engine"] == "emulated" else ""),
        line["network"],
        f"{line['ratio']:,.2f}" if line["ratio"] < 100 else f"{line['ratio']:,.0f}",
        line["unit"] if is_own else f"{line['unit']} ({line['declared']} was declared)",
        f"{line['unit_ratio']:.2f}",
        f"{line['share']:.2f} ({line['expected']:.2f} to {line['high']:.2f})",
        f"{line['constant']:.2f}",
        f"{line['bias']:.2f} +- {line['bias_error']:.2f}",
        line["verdict"],
        f"{line['seconds']:.0f}",
    )
    return "| " + " | ".join(cells) + " |"


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
    """What a planted bug was found by: its size, its averages, or nothing. Averages tell in float32, too."""
    if not line["unit_ratio"] <= THRESHOLD:
        return "size"
    is_function = line["share"] > max(line["high"], FUNCTION) and line["constant"] > CONSTANT
    if line["verdict"] == "not rounding" or (line["verdict"] == "rounding" and is_function):
        return "averages"
    return line["verdict"] if line["verdict"] in ("cannot say", "biased rounding") else "-"


def planted_rows(lines: list[Line]) -> Iterator[str]:
    """Rows of the table of bugs."""

    def key(line: Line) -> tuple[str, ...]:
        return line["engine"], line["way"], line["network"], line["fault"]

    for about, group in itertools.groupby(sorted(lines, key=lambda line: (*key(line), line["times"])), key):
        yield "| " + " | ".join([*about, *map(found_by, group)]) + " |"
