"""Runs the same work in several processes at once, each of which knows which one it is, as ``torchrun`` tells it."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessException, ProcessRaisedException, start_processes

from ...convert.errors import ConversionError
from ...convert.processes import end_with_parent, interrupts_ignored

_HOST = "127.0.0.1"


def in_processes(count: int, work: Callable[[], None]) -> None:
    """Runs work in new processes of this machine, and waits for all of them; if one fails, the others are ended.

    An interrupt is for this process alone. However it ends, they end with it.

    The environment of each has what ``torch.distributed`` and Lightning look for: its rank, how many there are, and
    where they meet. Each gets a copy of the work, with tensors of its own, and its share of this process's threads.

    Args:
        count: How many processes.
        work: Picklable; it returns nothing.

    Raises:
        ConversionError: What one of them was refused, or one ended by itself, as where the system lacks memory.
        OSError: What the file system said to one of them.
        MemoryError: One of them lacks memory.
    """
    failures: SimpleQueue[Any] = get_context("spawn").SimpleQueue()
    threads = max(1, torch.get_num_threads() // count)
    arguments = count, _free_port(), threads, pickle.dumps(work), failures  # tensors in bytes are not shared
    others = set(active_children())
    try:
        with interrupts_ignored():
            started = start_processes(_one, arguments, count, join=False, daemon=True, start_method="spawn")
        while not started.join():
            pass
    except ProcessException as error:
        if not failures.empty():
            raise failures.get() from None
        if isinstance(error, ProcessRaisedException):
            raise
        raise ConversionError(f"the training ended because one of its processes did: {error}") from error
    finally:
        for process in set(active_children()) - others:  # none, unless this process is to end
            process.kill()


def _one(rank: int, count: int, port: int, threads: int, work: bytes, failures: SimpleQueue[Any]) -> None:
    """Runs the work in one of the processes."""
    end_with_parent()
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "conv2attn",
    }
    torch.set_num_threads(threads)
    try:
        pickle.loads(work)()
    except (ConversionError, OSError, MemoryError) as error:
        failures.put(error)
        sys.exit(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
