"""Runs a campaign, in any number of processes.

Layers are checked in blocks, which count only in the order of their indices: a run that was cut short has the result of
its first layers. A process does not hear an interrupt: its parent ends it. However the parent ends, its processes end
with it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module

import torch

from ...convert.errors import ConversionError
from ..prover.run import end_with_parent, interrupts_ignored
from .arithmetic import check_device, core_count, describe_machine
from .checks import compare_layer
from .results import INTERRUPTED, OUT_OF_TIME, Campaign, Part, Settings, Shard, Tally

DEFAULT_LAYERS = 1000
ENDLESS = 10**12  # layers; no campaign gets there
_WORTH_PROCESSES = 200  # layers; for fewer, starting processes takes longer than it saves
_BLOCK = 8  # layers; what an interrupt loses at most, for each process
_AHEAD = 256  # blocks that an executor of the caller's, whose workers are not known, is given ahead


def run_campaign(
    settings: Settings,
    *,
    layers: int = DEFAULT_LAYERS,
    seed: int = 0,
    shard: Shard | None = None,
    minutes: float | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Campaign:
    """Checks random layers. An interrupt ends the run early, with the results so far.

    Args:
        settings: Its settings.
        layers: Layers of the whole campaign, of which a shard checks its own.
        seed: Seed of the layers.
        shard: The part of them to check; all by default.
        minutes: Start no layer after this time.
        workers: Processes; by default one a core for large campaigns on the CPU, else none. They are started as
            ``multiprocessing`` does, so a script that calls this needs its ``if __name__ == "__main__"``.
        executor: Runs the blocks instead of such processes, as Dask's ``Client.get_executor()`` does on a cluster
            whose workers have conv2attn. The result is that of one process.
        progress: Called with the number of layers that were just checked.

    Raises:
        ConversionError: The device cannot be used, or a process died.
    """
    check_device(settings.device)
    shard = shard or Shard()
    indices = shard.indices(layers)
    if workers is None:
        workers = core_count() if settings.device == "cpu" and len(indices) >= _WORTH_PROCESSES else 0
    start, tally, stopped = time.monotonic(), Tally(), None
    blocks = _blocks(indices, None if minutes is None else start + 60 * minutes)
    try:
        with _executor(executor, workers) as (runner, ahead):
            for block in _in_order(runner, settings, seed, blocks, ahead=ahead):
                tally = tally + block
                progress(block.layers)
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    except BrokenProcessPool as error:
        raise ConversionError("a process of the campaign died; perhaps the memory is too small") from error
    if stopped is None and tally.layers < len(indices):
        stopped = OUT_OF_TIME
    part = Part(seed, shard.number, shard.count, tally.layers)
    runs = (describe_machine(settings.device),)
    return Campaign(settings, (part,), tally, time.monotonic() - start, stopped, runs)


def check_block(settings: Settings, seed: int, indices: Sequence[int]) -> Tally:
    """Checks some layers of a seed."""
    tallies = []
    for index in indices:
        layer = settings.layer(seed, index)
        found = compare_layer(layer, engines=settings.engines, device=settings.device)
        tallies.append(Tally.of(layer, found, seed=seed, index=index))
    return Tally.total(tallies)


def _blocks(indices: range, deadline: float | None) -> Iterator[range]:
    """The blocks in order, until the deadline."""
    for start in range(0, len(indices), _BLOCK):
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield indices[start : start + _BLOCK]


def _in_order(
    executor: Executor | None, settings: Settings, seed: int, blocks: Iterator[range], *, ahead: int
) -> Iterator[Tally]:
    """The tallies of the blocks: in this process, or with up to ``ahead`` blocks started, the oldest waited for."""
    if executor is None:
        yield from (check_block(settings, seed, block) for block in blocks)
        return
    started: deque[Future[Tally]] = deque()
    for block in blocks:
        started.append(executor.submit(check_block, settings, seed, block))
        if len(started) == ahead:
            yield started.popleft().result()
    yield from (future.result() for future in started)


@contextmanager
def _executor(given: Executor | None, workers: int) -> Iterator[tuple[Executor | None, int]]:
    """The executor for the blocks (the caller's, none, or our own processes), and the number of blocks started ahead.

    Ours do not hear an interrupt, and are killed at the end: one may hang in a kernel of torch's.
    """
    if given is not None or workers < 2:
        yield given, _AHEAD
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        with interrupts_ignored(signal.SIGTERM):  # which clusters send to all processes
            for _ in range(workers):
                pool.submit(os.getpid)
        yield pool, 2 * workers
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepares a process: one thread, since there is one process a core; more would wait for each other.

    Modules stay as long as the process, so the garbage collector need not look at them again; it looks at the rest more
    rarely, since most garbage of a layer has no cycles.
    """
    torch.set_num_threads(1)
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    with suppress(ImportError):  # torch's progress bars make a lock that an end by force leaves behind
        import_module("tqdm").tqdm.set_lock(threading.RLock())
    end_with_parent()
