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
* Textures run for 40 epochs, cells for 10, digits until the default is flat: the default runs 50 epochs and 100. If its
  mean score on the images to choose with gains at most two points (those of five runs have a standard error of about
  one), 50 is the length for all rows, otherwise 100 is compared with 200.
* Criterion: the start at the taps becomes a public function if it beats the default, sines and cosines, and mimetic
  initialisation by more than two paired standard errors on digits and on one of textures and cells (the same one for
  all three), and loses to structured initialisation by more than two on none of the three. "Better than structured" is
  said of a set only where it beats it by more than two.
* All trainings together take at most eight hours of one core; then the program stops.

Lines are found again by what was trained: whoever changes a start, a set or the schedule begins a new file.

One thread. Sharp heads have shares that are subnormal numbers, which slow a processor down, so these are set to 0, for
all rows. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from children import Record, read, write
from started_vits import ROWS, THIS, shares
from torch import Tensor, nn
from vit_plan import Job, finder, plan
from vit_sets import TASKS
from vit_table import page

from conv2attn.proofs.campaign.arithmetic import describe_machine

PAGE = Path(__file__).with_name("VITS.md")
BATCH, DECAY = 50, 0.05
LIMIT = 8 * 3600.0
"""Seconds of the processor for all trainings."""


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


def main() -> None:
    """Goes on with the trainings, or writes the page, by the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file of JSON lines, one for each training")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after so many")
    parser.add_argument("--table", action="store_true", help=f"write {PAGE.name} from the lines so far")
    options = parser.parse_args()
    if options.table:
        PAGE.write_text(page(read(options.out), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print(run(options.out, minutes=options.minutes))


if __name__ == "__main__":
    main()
