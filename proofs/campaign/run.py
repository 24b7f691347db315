"""Runs a campaign: in this process, in several, or in those of a caller's executor.

Layers count only in the order of their indices: a run that was cut short has the result of its first layers. A caller's
executor gets them in blocks.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import takewhile

import torch
from pebble import ProcessExpired

from ...convert.errors import ConversionError
from ..prover.run import end_with_parent, process_pool
from .arithmetic import check_device, core_count, describe_machine
from .case import Comparison
from .checks import compare_layer
from .layers import RandomLayer
from .results import INTERRUPTED, OUT_OF_TIME, Campaign, Settings

DEFAULT_LAYERS = 1000
ENDLESS = 10**12  # layers; no campaign gets there
_WORTH_PROCESSES = 200  # layers; for fewer, starting processes takes longer than it saves
_BLOCK = 8  # layers that a caller's executor, whose workers may be far, checks at a time; elsewhere it is one
_AHEAD = 256  # blocks that an executor of the caller's, whose workers are not known, is given ahead

Block = list[tuple[int, RandomLayer, list[Comparison]]]  # layers by their indices, and their comparisons


def run_campaign(
    settings: Settings,
    *,
    layers: int = DEFAULT_LAYERS,
    first: int = 0,
    seed: int = 0,
    minutes: float | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Campaign:
    """Checks random layers. An interrupt ends the run early, with the results so far.

    Args:
        settings: Its settings.
        layers: Number of layers.
        first: Index of the first of them.
        seed: Seed of the layers.
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
    if workers is None:
        workers = core_count() if settings.device == "cpu" and layers >= _WORTH_PROCESSES else 0
    # Blocks come in the order of their indices, so an end at any time leaves the result of the first layers.
    start, found = time.monotonic(), Campaign(settings, seed, first, describe_machine(settings.device))
    size, deadline = 1 if executor is None else _BLOCK, None if minutes is None else start + 60 * minutes
    blocks = _blocks(range(first, first + layers), size, deadline)
    try:
        with _submitting(executor, workers) as (submit, ahead):
            for block in _in_order(submit, settings, seed, blocks, ahead=ahead):
                for checked in block:
                    found.add(*checked)
                progress(len(block))
    except KeyboardInterrupt:
        found.stopped = INTERRUPTED
    except (BrokenProcessPool, ProcessExpired) as error:
        raise ConversionError("a process of the campaign died; perhaps the memory is too small") from error
    if found.stopped is None and found.layers < layers:
        found.stopped = OUT_OF_TIME
    found.seconds = time.monotonic() - start
    return found


def check_block(settings: Settings, seed: int, indices: Sequence[int]) -> Block:
    """Checks some layers of a seed."""
    layers = {index: settings.layer(seed, index) for index in indices}
    compare = partial(compare_layer, engines=settings.engines, device=settings.device)
    return [(index, layer, compare(layer)) for index, layer in layers.items()]


def _blocks(indices: range, size: int, deadline: float | None) -> Iterator[range]:
    for start in range(0, len(indices), size):
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield indices[start : start + size]


Submit = Callable[..., Future[Block]]  # starts a call of a function with some arguments


def _in_order(
    submit: Submit | None, settings: Settings, seed: int, blocks: Iterator[range], *, ahead: int
) -> Iterator[Block]:
    """The checked blocks: in this process, or with up to ``ahead`` blocks started, the oldest waited for.

    An interrupt while one is waited for is raised after the blocks that are checked.
    """
    if submit is None:
        yield from (check_block(settings, seed, block) for block in blocks)
        return
    started: deque[Future[Block]] = deque()

    def oldest() -> Block:
        checked = started[0].result()
        started.popleft()
        return checked

    try:
        for block in blocks:
            started.append(submit(check_block, settings, seed, block))
            if len(started) == ahead:
                yield oldest()
        while started:
            yield oldest()
    except KeyboardInterrupt:
        yield from (future.result() for future in takewhile(Future.done, started))
        raise


@contextmanager
def _submitting(executor: Executor | None, workers: int) -> Iterator[tuple[Submit | None, int]]:
    """Starts blocks (in the caller's executor, in processes of our own, or None), and how many are started ahead."""
    if executor is not None:
        yield executor.submit, _AHEAD
    elif workers < 2:
        yield None, 0
    else:
        with process_pool(workers, _begin) as pool:
            yield (lambda function, *args: pool.schedule(function, args)), 2 * workers


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
