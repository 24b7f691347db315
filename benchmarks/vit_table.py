"""The criterion of ``vits.py`` and its page: paired differences, their standard errors, and what was tuned."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from children import Record
from started_vits import ROWS, THIS
from vit_plan import LENGTHS, SEEDS, Find, Job, best, beyond, finder, length, rated, tuned
from vit_sets import TASKS
from vit_shares import SHARES

CRITERION, RIVAL = ("default", "sines", "mimetic"), "structured"


class Paired(NamedTuple):
    """Mean of paired differences, its standard error (None for a single pair), and the number of seeds."""

    mean: float
    error: float | None
    seeds: int

    @property
    def is_more(self) -> bool:
        """Whether all seeds ran and the mean is above two standard errors."""
        return self.seeds == len(SEEDS) and self.error is not None and self.mean > 2 * self.error


def paired(mine: dict[int, float], theirs: dict[int, float]) -> Paired | None:
    """Compares scores by seed over the seeds that both have."""
    differences = [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
    if not differences:
        return None
    count = len(differences)
    error = statistics.stdev(differences) / math.sqrt(count) if count > 1 else None
    return Paired(statistics.fmean(differences), error, count)


Scores = dict[str, dict[str, dict[int, float]]]
"""Test scores by set, row and seed."""


def scores(find: Find) -> Scores:
    """The test scores of the five seeds that were run so far, at the tuned numbers, rates and length."""
    found: Scores = {task: {row: {} for row in ROWS} for task in TASKS}
    tries = {row: tuned(row, find) for row in ROWS}
    if any(job for _, job in tries.values()):
        return found
    chosen = {row: best(made) for row, (made, _) in tries.items()}
    epochs, _ = length(chosen["default"]["numbers"], chosen["default"]["rate"], find)
    for task in TASKS:
        for row in ROWS:
            numbers, rate = chosen[row]["numbers"], chosen[row]["rate"]
            if task != "digits":
                made, waiting = rated(task, row, numbers, find)
                if waiting:
                    continue
                rate = best(made)["rate"]
            for seed in SEEDS:
                record = find(
                    Job(task, row, numbers, rate, seed, (epochs or 0) if task == "digits" else TASKS[task].epochs)
                )
                if record is not None:
                    found[task][row][seed] = record["test"]
    return found


def verdict(found: Scores) -> tuple[bool | None, str]:
    """Whether the start becomes public by the criterion (None: not all ran), and a sentence with the reason."""
    short = [
        f"{row} on {task}: {len(found[task][row])} of {len(SEEDS)}"
        for task in TASKS
        for row in (*CRITERION, RIVAL, THIS)
        if len(found[task][row]) < len(SEEDS)
    ]
    if short:
        return None, f"The criterion cannot be judged yet ({len(short)} rows lack seeds; first {short[0]})."

    def beats(task: str, first: str, second: str) -> bool:
        difference = paired(found[task][first], found[task][second])
        return difference is not None and difference.is_more

    beaten = {task: all(beats(task, THIS, row) for row in CRITERION) for task in TASKS}
    lost = [task for task in TASKS if beats(task, RIVAL, THIS)]
    ahead = [task for task in TASKS if beats(task, THIS, RIVAL)]
    public = beaten["digits"] and any(beaten[task] for task in TASKS if task != "digits") and not lost
    where = ", ".join(task for task, is_beaten in beaten.items() if is_beaten) or "no set"
    return public, (
        f"By the criterion the start at the taps {'becomes' if public else 'does not become'} public: it beats the "
        f"default, sines and cosines, and mimetic initialisation on {where}; structured initialisation beats it on "
        f"{', '.join(lost) or 'none'}, and it beats structured initialisation on {', '.join(ahead) or 'none'}."
    )


def page(records: list[Record], before: str = "") -> str:
    """The page of results, as Markdown; the section of shares stays as it is on the page before."""
    find = finder(records)
    found = scores(find)
    hours = sum(record["seconds"] for record in records) / 3600
    machines = sorted({record["machine"].rpartition(", ")[0] for record in records})  # without the day
    lines = [
        "# A vision transformer that starts as a CNN",
        "",
        "`python benchmarks/vits.py benchmarks/vits.jsonl --table` writes this page. The program's docstring says what",
        "was fixed before the first training, [started_vits.py](started_vits.py) what each row is and its source.",
        "",
        verdict(found)[1],
        "",
        f"{len(records)} trainings, {hours:.2f} core hours. Machines: {'; '.join(machines) or 'none'}.",
        *(line for task in TASKS for line in _set_lines(task, found[task])),
        *_length_lines(find),
        *_share_lines(records),
        *_tuning_lines(find),
    ]
    _, heading, shares = before.partition(SHARES)
    return "\n".join(lines) + "\n" + f"\n{heading}{shares}" * bool(heading)


def _set_lines(task: str, found: dict[str, dict[int, float]]) -> Iterator[str]:
    yield from ("", f"## {TASKS[task].title[0].upper()}{TASKS[task].title[1:]}", "")
    if not any(found.values()):
        yield "Not run yet."
        return
    yield f"Test {TASKS[task].measure} in percent: mean and standard error over seeds; differences are paired by seed."
    yield from ("", "| start | test | taps minus it | seeds |", "| --- | --- | --- | --- |")
    for row, by_seed in found.items():
        own = paired(by_seed, dict.fromkeys(by_seed, 0.0))
        difference = paired(found[THIS], by_seed) if row != THIS else None
        yield f"| {ROWS[row].title} | {_format(own)} | {_format(difference, sign='+')} | {len(by_seed)} |"


def _format(value: Paired | None, *, sign: str = "") -> str:
    if value is None:
        return ""
    error = "" if value.error is None else f" ± {100 * value.error:.1f}"
    return f"{100 * value.mean:{sign}.1f}{error}"


def _length_lines(find: Find) -> Iterator[str]:
    made, waiting = tuned("default", find)
    if waiting:
        return
    top = best(made)
    yield from ("", "## Is the default flat on digits?", "", "| epochs | score on the images to choose with | seeds |")
    yield "| --- | --- | --- |"
    for each in sorted({*LENGTHS, *(2 * each for each in LENGTHS)}):
        jobs = (Job("digits", "default", top["numbers"], top["rate"], seed, each) for seed in SEEDS)
        values = {job.seed: record["validation"] for job in jobs if (record := find(job))}
        if values:
            yield f"| {each} | {_format(paired(values, dict.fromkeys(values, 0.0)))} | {len(values)} |"
    epochs, _ = length(top["numbers"], top["rate"], find)
    yield from ("", f"Length of all rows on digits: {epochs or 'open'}.")


def _share_lines(records: list[Record]) -> Iterator[str]:
    ours = [record for record in records if record["row"] == THIS]
    if not ours:
        return
    yield from ("", "## The share of attention at the tap", "")
    yield "Over 100 images, all heads and all queries whose tap is on the grid, in the blocks that start so. The bound"
    yield "is the claim's for the same tokens; a ratio below 1 beyond rounding would contradict it."
    yield from ("", "| set | sharpness | blocks | mean | least | least bound | least ratio | mean after training |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    groups: dict[tuple[str, float, int], list[dict[str, float]]] = {}
    for record in ours:
        key = record["task"], record["numbers"]["sharpness"], record["numbers"]["blocks"]
        groups.setdefault(key, []).append(record["shares"])
    for key, values in groups.items():
        mean, trained = (statistics.fmean(value[name] for value in values) for name in ("mean", "trained"))
        least, bound, ratio = (min(value[name] for value in values) for name in ("least", "bound", "least_ratio"))
        cells_ = *key, f"{mean:.3f}", f"{least:.3f}", f"{bound:.3f}", f"{ratio:.4f}", f"{trained:.3f}"
        yield f"| {' | '.join(map(str, cells_))} |"


def _tuning_lines(find: Find) -> Iterator[str]:
    yield from (
        "",
        "## Tuning",
        "",
        "Scores of one run on the images to choose with, in percent; the chosen one is bold.",
    )
    yield from ("", "| set | start | numbers | rate | score |", "| --- | --- | --- | --- | --- |")
    tries = {("digits", row): tuned(row, find) for row in ROWS}
    if all(job is None for _, job in tries.values()):
        for task in list(TASKS)[1:]:
            for row in ROWS:
                tries[task, row] = rated(task, row, best(tries["digits", row][0])["numbers"], find)
    for (task, row), (made, waiting) in tries.items():
        for record in made:
            numbers = ", ".join(f"{name} {value:g}" for name, value in record["numbers"].items())
            score = f"{100 * record['validation']:.1f}"
            if waiting is None and record is best(made):
                rates = [each["rate"] for each in made]
                score = f"**{score}**{' (the last rate)' * (beyond(rates, record['rate']) is not None)}"
            yield f"| {task} | {row} | {numbers} | {record['rate']:g} | {score} |"
