"""Runs the checks of claims in processes that a limit of processor time can end."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import islice
from multiprocessing import connection
from typing import TYPE_CHECKING

from .claim import Check, Claim, all_claims, claims_of, select

if TYPE_CHECKING:
    from pebble import ProcessPool

DEFAULT_LIMIT = 20.0  # seconds of the processor, a check
_PATIENCE = 10  # times the limit, and 2 s, by the clock: then a check that computes nothing is stopped, too
_OUT_OF_TIME = 124  # exit status of a process whose check is over its limit
_LOOK = 0.05  # seconds between two looks at the processor's time
MOST_FAILURES = 5  # after which a check is stopped


class Outcome(StrEnum):
    """Outcome of a check or a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"  # it found a case in which the claim is false
    TIMED_OUT = "ran out of time"  # nothing is known
    ERROR = "error"  # it broke, or there was nothing to check


_WORST_FIRST = (Outcome.FAILS, Outcome.ERROR, Outcome.TIMED_OUT, Outcome.HOLDS)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one check."""

    check: str  # its name
    outcome: Outcome
    failures: tuple[str, ...] = ()  # why it does not hold; empty if it does
    seconds: float = 0.0  # of the processor


@dataclass(frozen=True)
class Result:
    """A claim and the verdicts on its checks."""

    claim: Claim
    verdicts: tuple[Verdict, ...]

    @property
    def seconds(self) -> float:
        """Processor time of the checks."""
        return sum(verdict.seconds for verdict in self.verdicts)

    @property
    def outcome(self) -> Outcome:
        """The worst of the checks' outcomes; without a check, nothing was shown."""
        return min((verdict.outcome for verdict in self.verdicts), key=_WORST_FIRST.index, default=Outcome.ERROR)

    @property
    def holds(self) -> bool:
        """Whether all checks hold."""
        return self.outcome is Outcome.HOLDS

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures, each text beginning with the name of its check."""
        return tuple(f"{verdict.check}: {failure}" for verdict in self.verdicts for failure in verdict.failures)


def decide(check: Check) -> Verdict:
    """Runs one check, here and now."""
    start = time.process_time()
    try:
        found = list(islice(check.run(), MOST_FAILURES))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: nothing that a check does may look like a pass
        return Verdict(check.name, Outcome.ERROR, (f"it raised {type(error).__name__}: {error}",))
    if not all(isinstance(text, str) for text in found):
        return Verdict(check.name, Outcome.ERROR, (f"it gave {found!r}, not texts",))
    return Verdict(check.name, Outcome.FAILS if found else Outcome.HOLDS, tuple(found), time.process_time() - start)


def prove(
    names: Sequence[str] | None = None, *, limit: float = DEFAULT_LIMIT, modules: Sequence[str] | None = None
) -> list[Result]:
    """Runs the checks of claims.

    Args:
        names: Names of the claims; None means all.
        limit: Seconds of the processor that one check may take; one that takes longer is stopped and has run out of
            time.
        modules: Modules whose claims are meant, by default all of conv2attn's.

    Returns:
        One result a claim, in the order of the modules.

    Raises:
        SelectionError: There is no claim of one of the names.
        ConversionError: The limit is not positive and finite.
    """
    return list(iter_results(select(all_claims(modules), names), limit=limit))


def iter_results(chosen: Sequence[Claim], *, limit: float = DEFAULT_LIMIT) -> Iterator[Result]:
    """As ``prove``, yielding each result in order as soon as it is ready."""
    if not 0 < limit < math.inf:
        from ...convert.errors import ConversionError

        raise ConversionError(f"limit must be positive and finite; got {limit}")
    with process_pool(min(2, os.cpu_count() or 1), _start) as pool:
        futures = {
            (claim, n): pool.schedule(_decide, (claim.module, claim.name, n, limit), timeout=_clock(limit))
            for claim in chosen
            for n in range(len(claim.checks))
        }
        for claim in chosen:
            answers = (_answer(check.name, futures[claim, n], limit) for n, check in enumerate(claim.checks))
            yield Result(claim, tuple(answers))


@contextmanager
def process_pool(count: int, start: Callable[[], None]) -> Iterator[ProcessPool]:
    """Processes that end with the context, each prepared by a function, and that do not hear an interrupt."""
    from pebble import ProcessPool  # here, because commands that prove nothing import this module, too

    # Spawned, because a fork of a process with torch's threads may hang.
    pool = ProcessPool(count, initializer=start, context=multiprocessing.get_context("spawn"))
    try:
        with interrupts_ignored():
            pool.schedule(os.getpid)  # the first job starts the processes
        yield pool
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _start() -> None:
    """Prepares a process: it ends with its parent, and imports sympy before the first check is timed."""
    end_with_parent()
    importlib.import_module("sympy")


def end_with_parent() -> None:
    """Has this process end as soon as its parent has ended, even one that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes that are started in this context ignore interrupts, since they inherit it."""
    if threading.current_thread() is not threading.main_thread():  # only that one may, and is interrupted
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _clock(limit: float) -> float:
    return _PATIENCE * limit + 2


@cache
def _checks(module: str, name: str) -> tuple[Check, ...]:
    return next(claim.checks for claim in claims_of(module) if claim.name == name)


def _decide(module: str, name: str, number: int, limit: float) -> Verdict:
    with _ended_after(limit):
        return decide(_checks(module, name)[number])


@contextmanager
def _ended_after(limit: float) -> Iterator[None]:
    """Ends this process where the context takes more of the processor's time: nothing in a check can refuse that."""
    done, end = threading.Event(), time.process_time() + limit

    def watch() -> None:
        while not done.wait(min(_LOOK, limit)):
            if time.process_time() > end:
                os._exit(_OUT_OF_TIME)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _answer(check: str, future: Future[Verdict], limit: float) -> Verdict:
    """The verdict on a check, even if its process gave none."""
    from pebble import ProcessExpired

    try:
        return future.result()
    except TimeoutError:
        why = f"stopped after {_clock(limit):g} s, in which it computed for less than {limit:g} s"
        return Verdict(check, Outcome.TIMED_OUT, (why,), limit)
    except ProcessExpired as error:
        if error.exitcode == _OUT_OF_TIME:
            return Verdict(check, Outcome.TIMED_OUT, (f"stopped after {limit:g} s of the processor",), limit)
        why = f"the process that ran it ended with exit status {error.exitcode}"
    except Exception as error:
        why = f"it could not be read: {type(error).__name__}: {error}"
    return Verdict(check, Outcome.ERROR, (why,))
