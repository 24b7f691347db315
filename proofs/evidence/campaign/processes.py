"""Blocks of layers in several processes, their tallies in order.

A process does not hear an interrupt: its parent ends it. However the parent ends, its processes end with it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module

import torch

from ....convert.errors import ConversionError
from ....convert.parent import end_with_parent, interrupts_ignored
from .checks.all import compare_layer
from .settings import Settings
from .tally import Tally

_BLOCK = 8  # layers; what an interrupt loses at most, for each process
_AHEAD = 256  # blocks that an executor of the caller's, whose workers are not known, is given ahead

_Submit = Callable[[Sequence[int]], Callable[[], Tally]]  # starts a block; gives what waits for its tally


def check_block(settings: Settings, seed: int, indices: Sequence[int]) -> Tally:
    """Checks some layers of a seed."""
    tallies = []
    for index in indices:
        layer = settings.layer(seed, index)
        found = compare_layer(layer, engines=settings.engines, device=settings.device)
        tallies.append(Tally.of(layer, found, seed=seed, index=index))
    return Tally.total(tallies)


@contextmanager
def tallies_of(
    settings: Settings,
    seed: int,
    indices: range,
    deadline: float | None,
    workers: int,
    executor: Executor | None = None,
) -> Iterator[Iterator[Tally]]:
    """Yields the tallies of the blocks in order; blocks that are not started by the deadline are left out.

    An executor that is given runs the blocks in the place of processes of our own, and is left as it is.
    """
    if executor is not None:
        yield _in_order(
            indices, deadline, _AHEAD, lambda part: executor.submit(check_block, settings, seed, part).result
        )
        return
    if workers < 2:
        yield _in_order(indices, deadline, 1, lambda part: lambda: check_block(settings, seed, part))
        return
    with _pool(workers) as pool:
        yield _in_order(
            indices, deadline, 2 * workers, lambda part: pool.submit(check_block, settings, seed, part).result
        )


def _in_order(indices: range, deadline: float | None, ahead: int, submit: _Submit) -> Iterator[Tally]:
    """Keeps up to ``ahead`` blocks started, and waits for the oldest."""
    started: deque[Callable[[], Tally]] = deque()
    starts = iter(range(0, len(indices), _BLOCK))
    while True:
        while len(started) < ahead and (deadline is None or time.monotonic() < deadline):
            first = next(starts, None)
            if first is None:
                break
            started.append(submit(indices[first : first + _BLOCK]))
        if not started:
            return
        yield started.popleft()()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are killed when the context is left early, and do not hear an interrupt themselves."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    others = set(multiprocessing.active_children())
    try:
        with interrupts_ignored():
            for _ in range(workers):
                pool.submit(os.getpid)
        yield pool
    except BrokenProcessPool as error:
        raise ConversionError("a process of the campaign died; perhaps the memory is too small") from error
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepares a process: one thread, since there is one process a core; more would wait for each other."""
    torch.set_num_threads(1)
    with suppress(ImportError):  # torch's progress bars make a lock that an end by force leaves behind
        import_module("tqdm").tqdm.set_lock(threading.RLock())
    end_with_parent()
