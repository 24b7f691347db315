"""A vision transformer that starts as a CNN, beside seven others, on three small sets.

    pip install scikit-learn scikit-image elpv-dataset    # the last: CC BY-NC-SA 4.0, not for commercial use
    nice python benchmarks/vits.py benchmarks/vits.jsonl [--minutes 60]    # goes on where the last run ended
    python benchmarks/vits.py benchmarks/vits.jsonl --table                # writes benchmarks/VITS.md

The rows are those of ``started_vits.py``: one trunk, as many parameters, the same images in the same order, the same
schedule (AdamW, weight decay 0.05, batches of 50, gradients clipped at 1, a tenth of warm-up, then a cosine to 0; no
augmentation). What was fixed before the first training:

* Sets. Digits: scikit-learn's 8x8 pasted anywhere on 16x16, 400 to train, 400 to choose with, 797 to test. Textures:
  crops of 32x32 of eight of scikit-image's pictures, each crop with mean 0 and variance 1, from parts of the pictures
  that share no pixel; 400, 400 and 800. Cells: the grades of solar cells at 48x48, divided as in ``cells.py``, scored
  by macro-F1; the others by accuracy. The score is that of the last step.
* Tuning, on digits alone and with a seed of its own (5): seven tries for each row. Three are rates; while the best is
  the lowest or the highest, up to two more follow; what is left changes one of the row's own numbers each, on top of
  the best so far.
* Elsewhere each row has the numbers that were tuned on digits, and its rate is the best of four on the images to choose
  with, again with seed 5; while the best is the lowest or the highest, the next one is tried, up to three times.
* Seeds 0 to 4 are paired: a seed draws the images to train with, their order, and the weights.
* Digits run until the default is flat: the default runs 50 epochs and 100. If its mean score on the images to choose
  with gains at most two points (those of five runs have a standard error of about one), 50 is the length for all rows,
  otherwise 100 is compared with 200.
* Criterion: the start at the taps becomes a public function if it beats the default, sines and cosines, and mimetic
  initialisation by more than two paired standard errors on digits and on one of textures and cells (the same one for
  all three), and loses to structured initialisation by more than two on none of the three. "Better than structured" is
  said of a set only where it beats it by more than two.
* All trainings together take at most eight hours of one core; then the program stops.

One thread. Sharp heads have shares that are subnormal numbers, which slow a processor down, so these are set to 0, for
all rows. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from cells import GRADES, macro_f1, pictures, weighted
from cells import parts as parts_of_cells
from children import Record, read, write
from started_vits import ROWS, Numbers, Shape, shares
from torch import Tensor, nn

from conv2attn.learn.data.pictures import read_picture
from conv2attn.proofs.campaign.arithmetic import describe_machine

PAGE = Path(__file__).with_name("VITS.md")
THIS, CRITERION, RIVAL = "taps", ("default", "sines", "mimetic"), "structured"
SEEDS, TUNING = (0, 1, 2, 3, 4), 5
BATCH, DECAY = 50, 0.05
FIRST_RATES, RATES, STEP = (1e-3, 5e-4, 2e-3), (1e-3, 5e-4, 2e-3, 2.5e-4), 2.0
"""Rates of tuning, rates elsewhere, and the factor to the next one."""
TRIES, EXTENSIONS = 7, (2, 3)
"""Tries of a row on digits; rates beyond the first there, and elsewhere."""
LENGTHS, FLAT = (50, 100), 0.02
"""Epochs on digits, and the gain of twice as many that is still flat."""
LIMIT = 8 * 3600.0
TEXTURES = "brick", "grass", "gravel", "hubble_deep_field", "ihc", "moon", "page", "text"
_CROP, _CROPS = 32, {"train": 50, "validation": 50, "test": 100}
_WHERE = {"train": (0.0, 0.55), "validation": (0.55, 0.75), "test": (0.75, 1.0)}


class Part(NamedTuple):
    """Images [count, 1, rows, columns] and labels [count]."""

    images: Tensor
    labels: Tensor


Parts = tuple[Part, Part, Part]
"""To train with, to choose with, to test with."""


@lru_cache(maxsize=2)
def shifted_digits(seed: int) -> Parts:
    """Digits of 8x8 anywhere on 16x16; 400 of 600 are drawn to train with."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images, labels = torch.tensor(found.images / 16, dtype=torch.float32)[order], torch.tensor(found.target)[order]
    drawn = torch.randperm(600, generator=torch.Generator().manual_seed(seed))[:400]
    kinds = (drawn, 100 + seed), (torch.arange(600, 1000), 98), (torch.arange(1000, len(labels)), 99)
    train, validation, test = (Part(_pasted(images[which], key), labels[which]) for which, key in kinds)
    return train, validation, test


def _pasted(images: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(len(images), 1, 16, 16)
    for image, (row, column) in enumerate(torch.randint(0, 9, (len(images), 2), generator=generator).tolist()):
        found[image, 0, row : row + 8, column : column + 8] = images[image]
    return found


@lru_cache(maxsize=2)
def textures(seed: int) -> Parts:
    """Crops of textures; those to choose and to test with are the same for all seeds."""
    train, validation, test = (_crops(part, 100 + seed if part == "train" else 98) for part in _WHERE)
    return train, validation, test


def _crops(part: str, seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name in TEXTURES:
        image = texture(name, part)
        ends = (size - _CROP + 1 for size in image.shape)
        places = torch.stack([torch.randint(end, (_CROPS[part],), generator=generator) for end in ends], 1)
        found += [image[row : row + _CROP, column : column + _CROP] for row, column in places.tolist()]
    crops = torch.stack(found).unsqueeze(1)
    deviations, means = torch.std_mean(crops, (1, 2, 3), keepdim=True)
    return Part(
        (crops - means) / deviations.clamp(min=1e-3), torch.arange(len(TEXTURES)).repeat_interleave(_CROPS[part])
    )


def texture(name: str, part: str) -> Tensor:
    """A part of a picture, [rows, columns]; parts lie beside each other."""
    image = _picture(name)
    low, high = (int(share * image.shape[1]) for share in _WHERE[part])
    return image[:, low:high]


@cache
def _picture(name: str) -> Tensor:
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise SystemExit("the textures are scikit-image's: pip install scikit-image")
    return read_picture(next((Path(spec.origin).parent / "data").glob(f"{name}.*")), 1)[0]


@lru_cache(maxsize=2)
def cells(seed: int) -> Parts:
    """Solar cells and their grades."""
    train, validation, test = (Part(part.pictures(), part.labels) for part in parts_of_cells(*pictures(48), seed))
    return train, validation, test


def accuracy(called: Tensor, labels: Tensor) -> float:
    """The share of labels that were called so."""
    return float((called == labels).double().mean())


@dataclass(frozen=True)
class Task:
    """A set.

    Attributes:
        title: In the tables.
        shape: Of its images.
        parts: Its images, by seed.
        epochs: Passes over the images to train with; on digits the shortest length.
        loss: Of scores and labels.
        score: Of called classes and labels, from 0 to 1.
        measure: Name of the score.
    """

    title: str
    shape: Shape
    parts: Callable[[int], Parts]
    epochs: int
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    score: Callable[[Tensor, Tensor], float] = accuracy
    measure: str = "accuracy"


TASKS = {
    "digits": Task("shifted digits, 400 images", Shape(2, 10), shifted_digits, LENGTHS[0]),
    "textures": Task("textures, 400 crops", Shape(4, len(TEXTURES)), textures, 50),
    "cells": Task("solar cells, 1,562 images", Shape(6, len(GRADES)), cells, 12, weighted, macro_f1, "macro-F1"),
}


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


@torch.no_grad()
def _called(network: nn.Module, images: Tensor) -> Tensor:
    network.eval()
    called = torch.cat([network(batch).argmax(1) for batch in images.split(100)])
    network.train()
    return called


def train(job: Job, *, steps: int | None = None) -> Record:
    """Trains a network, or so many steps of it, and scores it.

    Returns:
        The line: the job, scores of the parts to choose and to test with, the former after each quarter, parameters,
        seconds of the processor, the machine; for the row of the taps also the shares at the taps.
    """
    start, task = time.process_time(), TASKS[job.task]
    data, validation, test = task.parts(job.seed)
    torch.manual_seed(job.seed)
    network = ROWS[job.row].make(task.shape, **job.numbers)
    record: Record = job._asdict()
    if job.row == THIS:
        record["shares"] = _shares(network, job, validation.images[:100])
    optimizer = torch.optim.AdamW(network.parameters(), lr=job.rate, weight_decay=DECAY)
    total = steps or job.epochs * (len(data.labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, job.rate, total_steps=total + 1, pct_start=0.1)
    curve = []
    for step, chosen in enumerate(_batches(len(data.labels), job.seed, total), 1):
        loss = task.loss(network(data.images[chosen]), data.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(total // 4, 1) == 0:
            curve.append(task.score(_called(network, validation.images), validation.labels))
    if job.row == THIS:
        record["shares"]["trained"] = _shares(network, job, validation.images[:100])["mean"]
    return record | {
        "validation": task.score(_called(network, validation.images), validation.labels),
        "test": task.score(_called(network, test.images), test.labels),
        "curve": curve,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "seconds": round(time.process_time() - start, 1),
        "machine": describe_machine("cpu"),
    }


def _batches(count: int, seed: int, total: int) -> Iterator[Tensor]:
    """The same batches for all rows."""
    generator = torch.Generator().manual_seed(seed)
    made = 0
    while True:
        for chosen in torch.randperm(count, generator=generator)[: count // BATCH * BATCH].split(BATCH):
            if made == total:
                return
            yield chosen
            made += 1


def _shares(network: nn.Module, job: Job, images: Tensor) -> dict[str, float]:
    """Shares of attention at the taps over images, heads and queries, and the claim's bound at the start."""
    found, bound = shares(network, images, sharpness=job.numbers["sharpness"], blocks=job.numbers["blocks"])
    least = {"least": found.min(), "bound": bound.min(), "least_ratio": (found / bound).min(), "mean": found.mean()}
    return {name: float(value) for name, value in least.items()}


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


def run(out: Path, *, minutes: float, work: Callable[[Job], Record] = train) -> str:
    """Runs trainings, one after the other, and writes a line as soon as each ends; says why it stopped."""
    end = time.monotonic() + 60 * minutes
    while True:
        records = read(out)
        job = next(plan(finder(records)), None)
        if job is None:
            return "All trainings ended."
        spent = sum(record["seconds"] for record in records)
        if spent >= LIMIT:
            return f"{spent / 3600:.1f} core hours are spent; the next training would be {job}."
        if time.monotonic() >= end:
            return f"{len(records)} trainings so far, {spent / 3600:.2f} core hours; the next one is {job}."
        record = work(job)
        write(out, record)
        print(f"{job}: {record['validation']:.3f} {record['test']:.3f}, {record['seconds']:.0f} s", flush=True)


class Paired(NamedTuple):
    """Mean of paired differences, its standard error (None for a single pair), and the number of pairs."""

    mean: float
    error: float | None
    count: int

    @property
    def is_more(self) -> bool:
        """Whether all seeds ran and the mean is above two standard errors."""
        return self.count == len(SEEDS) and self.error is not None and self.mean > 2 * self.error


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


def page(records: list[Record]) -> str:
    """The page of results, as Markdown."""
    find = finder(records)
    found = scores(find)
    hours = sum(record["seconds"] for record in records) / 3600
    machines = sorted({record["machine"] for record in records})
    lines = [
        "# A vision transformer that starts as a CNN",
        "",
        "`python benchmarks/vits.py benchmarks/vits.jsonl --table` writes this page. The program's docstring says what",
        "was fixed before the first training, [started_vits.py](started_vits.py) what each row is and its source.",
        "",
        verdict(found)[1],
        "",
        f"{len(records)} trainings, {hours:.2f} core hours so far. Machines: {'; '.join(machines) or 'none'}.",
        *(line for task in TASKS for line in _set_lines(task, found[task])),
        *_length_lines(find),
        *_share_lines(records),
        *_tuning_lines(find),
    ]
    return "\n".join(lines) + "\n"


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
    for epochs in sorted({*LENGTHS, *(2 * each for each in LENGTHS)}):
        jobs = (Job("digits", "default", top["numbers"], top["rate"], seed, epochs) for seed in SEEDS)
        values = {job.seed: record["validation"] for job in jobs if (record := find(job))}
        if values:
            yield f"| {epochs} | {_format(paired(values, dict.fromkeys(values, 0.0)))} | {len(values)} |"
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
            is_chosen = waiting is None and record is best(made)
            yield f"| {task} | {row} | {numbers} | {record['rate']:g} | {f'**{score}**' if is_chosen else score} |"


def main() -> None:
    """Goes on with the trainings, or writes the page, by the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file of JSON lines, one for each training")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after so many")
    parser.add_argument("--table", action="store_true", help=f"write {PAGE.name} from the lines so far")
    options = parser.parse_args()
    if options.table:
        PAGE.write_text(page(read(options.out)), encoding="utf-8")
        return
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print(run(options.out, minutes=options.minutes))


if __name__ == "__main__":
    main()
