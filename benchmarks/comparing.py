"""Options, runs and tables of the programs that compare a graft with the CNN and with other people's blocks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from conv2attn.commands.graft_verdict import scores_table, verdict_of
from conv2attn.convert.plain import read_json
from conv2attn.learn.arms import Comparison, Outcomes
from conv2attn.learn.grafting import TITLES, compare_grafts
from conv2attn.learn.training.folders import write_json
from conv2attn.learn.training.recipe import Machine, Session

RESULT = "result.json"


def folder_of(package: str, missing: str) -> Path:
    """The folder of an installed package, whose code is not run.

    Raises:
        SystemExit: It is missing.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(missing)
    return Path(spec.origin).parent


def run(comparisons: Mapping[str, Comparison], description: str | None) -> None:
    """Runs a comparison by the options of the command line, or prints the table of one that ended."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if len(comparisons) > 1:
        parser.add_argument("task", choices=comparisons)
    parser.add_argument("out", type=Path, help="folder of the runs; one that exists is continued")
    parser.add_argument("--seeds", type=int, default=5, help="with 0 only steps are timed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, in processes that share the threads")
    parser.add_argument("--accelerator", default="auto", help="as Lightning's: auto, cpu, gpu")
    parser.add_argument("--epochs", type=int, help="of the fine-tuning, in place of the comparison's")
    parser.add_argument("--table", action="store_true", help=f"print the table of {RESULT} in the folder")
    options = parser.parse_args()
    comparison = comparisons[getattr(options, "task", next(iter(comparisons)))]
    if not options.table:
        torch.set_num_threads(options.threads)
        machine = Machine(options.accelerator)
        session = Session(machine, resume=options.out.exists(), say=print, jobs=options.jobs)
        if options.epochs:
            comparison = replace(comparison, onward=replace(comparison.onward, epochs=options.epochs))
        outcomes = compare_grafts(comparison, options.out, seeds=options.seeds, session=session)
        if not options.seeds:
            return
        write_json(options.out / RESULT, outcomes.to_json())
    print(summary(comparison, Outcomes.of_json(read_json(options.out / RESULT))))


def summary(comparison: Comparison, outcomes: Outcomes) -> str:
    """A comparison's table as Markdown, and one sentence on who won."""
    titles = TITLES | {name: arm.title for name, arm in comparison.arms.items()}
    table = scores_table(outcomes, comparison.measures, titles)
    lines = [table.header, ("---",) * len(table.header), *table.rows]
    rows = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    return f"{rows}\n\n{verdict_of(outcomes, comparison.measures[0], titles)}."
