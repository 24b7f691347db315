"""Runs a campaign.

The result of a run that was cut short is that of its first layers: blocks count only in the order of their indices.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from concurrent.futures import Executor

import torch

from ..arithmetic import check_device
from ..machine import Machine, cpu_features
from .processes import tallies_of
from .result import INTERRUPTED, OUT_OF_TIME, Campaign, Part
from .settings import Settings
from .shard import Shard
from .tally import Tally

DEFAULT_LAYERS = 1000
ENDLESS = 10**12  # layers; no campaign gets there
_WORTH_PROCESSES = 200  # layers; for fewer, starting processes takes longer than it saves


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
    """Checks random layers. An interrupt ends it early, with what was found until then.

    Args:
        settings: How.
        layers: Layers of the whole campaign, of which a shard checks its own.
        seed: Of the layers.
        shard: Which of them; all by default.
        minutes: Start no layer after this time.
        workers: Processes; by default one a core for large campaigns on the CPU, else none. They are started as
            ``multiprocessing`` does, so a script that calls this needs its ``if __name__ == "__main__"``.
        executor: What runs the blocks instead of such processes, as Dask's ``Client.get_executor()`` does on a cluster
            whose workers have conv2attn. The result is that of one process.
        progress: Called with the number of layers that were just checked.

    Raises:
        ConversionError: The device cannot be used, or a process died.
    """
    check_device(settings.device)
    shard = shard or Shard()
    indices = shard.indices(layers)
    start, tally, stopped = time.monotonic(), Tally(), None
    deadline = None if minutes is None else start + 60 * minutes
    try:
        with tallies_of(settings, seed, indices, deadline, _workers(settings, indices, workers), executor) as tallies:
            for block in tallies:
                tally = tally + block
                progress(block.layers)
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    if stopped is None and tally.layers < len(indices):
        stopped = OUT_OF_TIME
    part = Part(seed, shard.number, shard.count, tally.layers)
    return Campaign(settings, (part,), tally, time.monotonic() - start, stopped, (_here(settings),))


def layer_count(layers: int | None, minutes: float | None) -> int:
    """How many layers a campaign has, all shards together: by default 1000, or as many as the minutes allow."""
    if layers is not None:
        return layers
    return DEFAULT_LAYERS if minutes is None else ENDLESS


def _workers(settings: Settings, indices: range, workers: int | None) -> int:
    if workers is not None:
        return workers
    if settings.device != "cpu" or len(indices) < _WORTH_PROCESSES:
        return 0
    return Machine.here(torch.device(settings.device)).cores


def _here(settings: Settings) -> str:
    """The day and the machine."""
    machine = Machine.here(torch.device(settings.device))
    cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
    processor = machine.gpu or f"{platform.machine()}, {cores}, {cpu_features()}"
    return f"{machine.date}, {processor}"
