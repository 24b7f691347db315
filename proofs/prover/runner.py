"""Proves claims: runs their checks in processes that a time limit can end, and says what came of it."""

from __future__ import annotations

import math
import os
import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from .claim import Claim
from .process import OutOfTimeError, Worker, WorkerDiedError
from .prose import plain
from .registry import Entry, entries, select

DEFAULT_LIMIT = 20.0  # seconds a claim


class Status(StrEnum):
    """What became of a claim."""

    PROVED = "proved"  # every check ran and found nothing
    FAILED = "failed"  # a check found a case in which the claim is false
    TIMED_OUT = "timed out"
    ERROR = "error"  # a check broke, or there was nothing to check


@dataclass(frozen=True)
class Result:
    """A claim and what its checks said.

    Attributes:
        claim: The claim.
        status: "proved", "failed", "timed out" or "error"; everything but the first is a failure.
        seconds: How long it took.
        failures: What was found against it, each text beginning with the name of its check.
        passed: Names of the checks that held.
    """

    claim: Claim
    status: Status
    seconds: float
    failures: tuple[str, ...]
    passed: tuple[str, ...]

    @property
    def is_proved(self) -> bool:
        """Whether all checks held."""
        return self.status is Status.PROVED


def prove(
    names: Sequence[str] | None = None, *, limit: float = DEFAULT_LIMIT, modules: Sequence[str] | None = None
) -> list[Result]:
    """Proves claims.

    Args:
        names: Names of the claims; None means all.
        limit: Seconds that one claim may take; a claim that takes longer is stopped and has failed.
        modules: Modules whose ``claims()`` are meant, by default all of conv2attn's.

    Returns:
        One result a claim, in the order of the modules.

    Raises:
        SelectionError: There is no claim of one of the names.
        ConversionError: The limit is not positive and finite.
    """
    return list(iter_results(select(entries(modules), names), limit=limit))


def iter_results(chosen: Sequence[Entry], *, limit: float = DEFAULT_LIMIT) -> Iterator[Result]:
    """As ``prove``, each result as soon as it and those before it are there."""
    if not 0 < limit < math.inf:
        from ...convert.errors import ConversionError

        raise ConversionError(f"limit must be positive and finite; got {limit}")
    workers = [Worker() for _ in range(min(len(chosen), os.cpu_count() or 1, 2))]
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(entry: Entry) -> Result:
        worker = idle.get()
        try:
            return _result(entry, worker, limit)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(max(len(workers), 1)) as pool:
        try:
            yield from pool.map(run, chosen)
        finally:
            for worker in workers:  # before the pool waits for its threads
                worker.close()


def _result(entry: Entry, worker: Worker, limit: float) -> Result:
    """Runs one claim and sums up the verdicts on its checks."""
    seen: list[str] = []
    passed: list[str] = []
    failures: list[str] = []
    ended: Status | None = None
    broken = False
    start = time.monotonic()
    try:
        worker.start()
        start = time.monotonic()
        for verdict in worker.verdicts(entry.module, entry.claim.name, limit):
            seen.append(verdict.check)
            failures += [f"{plain(verdict.check)}: {failure}" for failure in verdict.failures]
            passed += [] if verdict.failures else [verdict.check]
            broken = broken or verdict.is_error
    except OutOfTimeError:
        ended = Status.TIMED_OUT
        failures.append(f"{_running(entry.claim, seen)}: stopped after {limit:g} s")
    except WorkerDiedError as error:
        ended = Status.ERROR
        failures.append(f"{_running(entry.claim, seen)}: {error}")
    seconds = time.monotonic() - start
    if not failures and passed != [check.name for check in entry.claim.checks]:
        broken, failures = True, ["the claim itself: not all of its checks ran"]
    judged = Status.ERROR if broken else Status.FAILED if failures else Status.PROVED
    return Result(entry.claim, ended or judged, seconds, tuple(failures), tuple(passed))


def _running(claim: Claim, seen: Sequence[str]) -> str:
    """The check whose verdict was awaited when the answers ended."""
    return next((plain(check.name) for check in claim.checks if check.name not in seen), "the claim itself")
