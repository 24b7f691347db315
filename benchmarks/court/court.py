"""The court: public questions, made again, and what each tool says of them. ``make court`` runs it; KIND= chooses.

    python benchmarks/court/court.py build/court.jsonl [--kind ports] [--jobs 2]
    python benchmarks/court/court.py --check          # all tools but ours, to see that cases build what they say
    python benchmarks/court/court.py build/court.jsonl --table

A line of JSON is written for every case as soon as it is known; a run goes on where the last one ended, and a case
whose file has changed runs again. The table goes to benchmarks/COURT.md, between two marks.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import multiprocessing
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnxruntime
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]  # its cases import its modules by name

from tools import OTHERS, Run, ours  # noqa: E402
from truth import KINDS, Bug, Case, Open, Rounding, Sides, score  # noqa: E402

PAGE = HERE.parent / "COURT.md"
MARKS = "<!-- the table: make court writes it -->", "<!-- the end of the table -->"
OURS = "same"
SEED = 0
Record = dict[str, Any]


def names(kind: str | None = None) -> list[str]:
    """Names of all cases, or of a kind, by kind and name."""
    found = {path.stem: case(path.stem).kind for path in (HERE / "cases").glob("*.py")}
    order = list(KINDS)
    return sorted((name for name in found if kind in (None, found[name])), key=lambda x: (order.index(found[x]), x))


def case(name: str) -> Case:
    """A case."""
    found = importlib.import_module(f"cases.{name}").CASE
    assert isinstance(found, Case)
    return found


def built(name: str, folder: Path) -> Sides:
    """Both sides of a case; the same numbers each time."""
    torch.manual_seed(SEED)
    sides = importlib.import_module(f"cases.{name}").build(folder)
    assert isinstance(sides, Sides)
    return sides


def heard(name: str, *, is_check: bool = False) -> Record:
    """What the tools say of a case."""
    torch.set_num_threads(1)
    truth = case(name).truth
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sides = built(name, Path(folder))
        run = Run(sides)
        said = {tool: ask(run) for tool, ask in OTHERS.items()}
        if not is_check:
            torch.manual_seed(SEED)
            said[OURS] = ours(sides, truth)
    return {
        "case": name,
        "file": _digest(name),
        "b": _form(sides.b),
        "difference": run.difference,
        "relative": run.relative,
        "said": {tool: {**asdict(one), "score": score(truth, one)} for tool, one in said.items()},
    }


def _form(side: Any) -> str:
    """What a side is to a tool."""
    if isinstance(side, Path):
        return "ONNX file"
    if isinstance(side, torch.nn.Module):
        return "compiled" if hasattr(side, "_orig_mod") else "network"
    return "black box"


def _digest(name: str) -> str:
    return hashlib.sha256((HERE / "cases" / f"{name}.py").read_bytes()).hexdigest()[:16]


def _checked(name: str) -> Record:
    return heard(name, is_check=True)


def _records(out: Path) -> dict[str, Record]:
    """The lines so far, of cases as they are now."""
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    return {line["case"]: line for line in lines if line["file"] == _digest(line["case"])}


def _each(todo: list[str], jobs: int, *, is_check: bool) -> Iterator[Record]:
    """Runs cases, several at a time, in processes that are forked, as importing takes seconds."""
    work = _checked if is_check else heard
    if jobs == 1:
        yield from map(work, todo)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=8) as pool:
        yield from pool.imap_unordered(work, todo)


def _truth(one: Case) -> str:
    truth = one.truth
    if isinstance(truth, Bug):
        return f"bug: {truth.operation}"
    if isinstance(truth, Open):
        return f"open: {truth.reason}"
    unit = f"{truth.unit}, declared {truth.declared}" if truth.is_coarser else truth.unit
    return f"rounding of {unit}: {truth.reason}"


def _cell(said: Record) -> str:
    """A tool's answer: its verdict, and how it was scored if it is not right."""
    mark = {
        "right": "",
        "miss": "**miss** ",
        "false alarm": "**alarm** ",
        "undecided": "*undecided* ",
        "not scored": "",
    }
    return f"{mark[said['score']]}{said['words']}"


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def totals(records: dict[str, Record]) -> list[str]:
    """Lines of the table of counts, a tool a line."""
    lines = [
        "| tool | right | misses | false alarms: declared unit | false alarms: coarser unit | undecided |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    truths = {name: case(name).truth for name in records}
    bugs = sum(isinstance(one, Bug) for one in truths.values())
    coarse = sum(isinstance(one, Rounding) and one.is_coarser for one in truths.values())
    fine = sum(isinstance(one, Rounding) for one in truths.values()) - coarse
    for tool in (*OTHERS, OURS):
        scores: Counter[str] = Counter()
        for name, record in records.items():
            found, truth = record["said"][tool]["score"], truths[name]
            if found == "false alarm" and isinstance(truth, Rounding) and truth.is_coarser:
                found = "coarser alarm"
            scores[found] += 1
        lines.append(
            f"| {tool} | {scores['right']} of {bugs + fine + coarse} | {scores['miss']} of {bugs} | "
            f"{scores['false alarm']} of {fine} | {scores['coarser alarm']} of {coarse} | {scores['undecided']} |"
        )
    return lines


def table(records: dict[str, Record]) -> str:
    """The counts, and a table of cases for each kind."""
    lines = totals(records)
    bugs = [record for name, record in records.items() if isinstance(case(name).truth, Bug)]
    seen = [record["said"][OURS] for record in bugs if record["b"] in ("network", "ONNX file")]
    caught = [one for one in seen if one["named"] is not None]
    lines += [
        "",
        f"In {len(bugs) - len(seen)} of {len(bugs)} bugs, B is a black box or compiled, and `same` has only "
        f"outputs. In the other {len(seen)}, `same` names one in {len(caught)}: the right one first in "
        f"{sum(one['named'] for one in caught)}, with its cause in {sum(one['explained'] for one in caught)}. It took "
        f"{sum(record['said'][OURS]['seconds'] for record in records.values()):.0f} seconds of the processor in all. "
        f"torch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}.",
    ]
    for kind, title in KINDS.items():
        own = [name for name in names(kind) if name in records]
        lines += ["", f"### {title[0].upper()}{title[1:]}", ""]
        head = ["case", "truth", "B", "difference", *OTHERS, OURS, "operation", "cause", "seconds"]
        lines += [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
        for name in own:
            one, record = case(name), records[name]
            said = record["said"]
            cells = [f"[{name}]({one.thread})", _truth(one), record["b"], f"{record['difference']:.2g}"]
            cells += [_cell(said[tool]) for tool in (*OTHERS, OURS)]
            cells += [_yes(said[OURS]["named"]), _yes(said[OURS]["explained"]), f"{said[OURS]['seconds']:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(records: dict[str, Record]) -> None:
    """Puts the table into the page, between its marks."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{table(records)}\n\n{MARKS[1]}{after}")


def main() -> None:
    """Runs the cases that are not known yet, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("build/court.jsonl"))
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--case", help="one case, by its name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="all tools but ours, on the screen")
    parser.add_argument("--table", action="store_true", help="write the table of what is known")
    given = parser.parse_args()
    known = {} if given.check else _records(given.out)
    asked = [given.case] if given.case else names(given.kind)
    todo = [] if given.table else [name for name in asked if name not in known]
    for record in _each(todo, given.jobs, is_check=given.check):
        shown = ", ".join(f"{tool} {one['words']} ({one['score']})" for tool, one in record["said"].items())
        print(f"{record['case']}: {record['difference']:.3g}, relative {record['relative']:.3g}; {shown}", flush=True)
        if not given.check:
            known[record["case"]] = record
            given.out.parent.mkdir(parents=True, exist_ok=True)
            with given.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
    if not given.check:
        write({name: known[name] for name in names() if name in known})


if __name__ == "__main__":
    main()
