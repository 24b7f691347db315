"""The trainings of ``vits.py``, in their order: each follows from the lines of those before it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from children import Record
from started_vits import ROWS
from vit_sets import TASKS
from vit_trunk import Numbers

SEEDS, TUNING = (0, 1, 2, 3, 4), 5
FIRST_RATES, RATES, STEP = (1e-3, 5e-4, 2e-3), (1e-3, 5e-4, 2e-3, 2.5e-4), 2.0
"""Rates of tuning, rates elsewhere, and the factor to the next one."""
TRIES, EXTENSIONS = 7, (2, 3)
"""Tries of a row on digits; rates beyond the first there, and elsewhere."""
LENGTHS, FLAT = (50, 100), 0.02
"""Epochs on digits, and the gain of twice as many that is still flat."""


class Job(NamedTuple):
    """A training; what follows it in a line of the file are its results."""

    task: str
    row: str
    numbers: Numbers
    rate: float
    seed: int
    epochs: int


def job_of(record: Record) -> Job:
    """The training of a line."""
    return Job(*(record[field] for field in Job._fields))


Find = Callable[[Job], Record | None]
"""The line of a training, if it was run."""


def best(records: list[Record]) -> Record:
    """The first of those with the highest score on the images to choose with."""
    return max(records, key=lambda record: float(record["validation"]))


def beyond(rates: list[float], chosen: float) -> float | None:
    """The rate to try next if the chosen one is the lowest or the highest."""
    if chosen == max(rates):
        return chosen * STEP
    return chosen / STEP if chosen == min(rates) else None


def next_try(row: str, made: list[Record]) -> Job:
    """The next try of a row on digits."""
    first, numbers = len(FIRST_RATES), ROWS[row].numbers
    if len(made) < first:
        return Job("digits", row, numbers, FIRST_RATES[len(made)], TUNING, LENGTHS[0])
    rates = [record["rate"] for record in made if record["numbers"] == numbers]
    top = best(made)
    further = beyond(rates, top["rate"])
    if further is not None and len(rates) == len(made) < first + EXTENSIONS[0]:
        return Job("digits", row, numbers, further, TUNING, LENGTHS[0])
    change = ROWS[row].tries[len(made) - len(rates)]
    return Job("digits", row, top["numbers"] | change, top["rate"], TUNING, LENGTHS[0])


def tuned(row: str, find: Find) -> tuple[list[Record], Job | None]:
    """The tries of a row on digits so far, and the next one."""
    made: list[Record] = []
    while len(made) < TRIES:
        job = next_try(row, made)
        record = find(job)
        if record is None:
            return made, job
        made.append(record)
    return made, None


def rated(task: str, row: str, numbers: Numbers, find: Find) -> tuple[list[Record], Job | None]:
    """The rates that a row tried on another set so far, and the next one."""
    made: list[Record] = []
    rates = list(RATES)
    while True:
        for rate in rates[len(made) :]:
            job = Job(task, row, numbers, rate, TUNING, TASKS[task].epochs)
            record = find(job)
            if record is None:
                return made, job
            made.append(record)
        further = beyond(rates, best(made)["rate"])
        if further is None or len(rates) == len(RATES) + EXTENSIONS[1]:
            return made, None
        rates.append(further)


def length(numbers: Numbers, rate: float, find: Find) -> tuple[int | None, list[Job]]:
    """The epochs on digits, if they are known, and otherwise the trainings that are missing."""
    for epochs in LENGTHS:
        pairs = [
            [Job("digits", "default", numbers, rate, seed, each) for seed in SEEDS] for each in (epochs, 2 * epochs)
        ]
        missing = [job for jobs in pairs for job in jobs if find(job) is None]
        if missing:
            return None, missing
        short, long = (statistics.fmean(_found(job, find)["validation"] for job in jobs) for jobs in pairs)
        if long - short <= FLAT:
            return epochs, []
    return 2 * LENGTHS[-1], []


def _found(job: Job, find: Find) -> Record:
    record = find(job)
    if record is None:
        raise LookupError(job)
    return record


def plan(find: Find) -> Iterator[Job]:
    """The trainings that can be run now, the most useful first. None are left when all ended."""
    tries = {row: tuned(row, find) for row in ROWS}
    unfinished = [(len(made), job) for made, job in tries.values() if job is not None]
    if unfinished:
        yield from (job for _, job in sorted(unfinished, key=lambda each: each[0]))
        return
    chosen = {row: best(made) for row, (made, _) in tries.items()}
    epochs, missing = length(chosen["default"]["numbers"], chosen["default"]["rate"], find)
    if epochs is None:
        yield from missing
        return
    for task in TASKS:
        rates = {row: chosen[row]["rate"] for row in ROWS}
        if task != "digits":
            trials = {row: rated(task, row, chosen[row]["numbers"], find) for row in ROWS}
            waiting = [job for _, job in trials.values() if job is not None]
            if waiting:
                yield from waiting
                return
            rates = {row: best(made)["rate"] for row, (made, _) in trials.items()}
        jobs = (
            Job(task, row, chosen[row]["numbers"], rates[row], seed, epochs if task == "digits" else TASKS[task].epochs)
            for seed in SEEDS
            for row in ROWS
        )
        missing = [job for job in jobs if find(job) is None]
        if missing:
            yield from missing
            return


def finder(records: list[Record]) -> Find:
    """Finds lines by their training."""
    known = {json.dumps(job_of(record), sort_keys=True): record for record in records}
    return lambda job: known.get(json.dumps(job, sort_keys=True))
