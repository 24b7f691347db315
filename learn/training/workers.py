"""Independent jobs, one after another in this process or several at a time in others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

Jobs = Sequence[Callable[[], Any]]
Workers = Callable[[Jobs], list[Any]]
"""Does jobs, and returns their results in the order of the jobs."""


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    """Does jobs in new processes of this machine, which share this process's threads and end with the context.

    A job's error is raised here. With ``count`` 1 everything happens in this process.

    Args:
        count: How many processes. Jobs and results must then be picklable.
    """
    if count == 1:
        yield lambda jobs: [job() for job in jobs]
        return
    from pebble import ProcessPool  # here, because a training in one process needs no pool

    threads = max(1, torch.get_num_threads() // count)
    pool = ProcessPool(count, initializer=torch.set_num_threads, initargs=(threads,), context=get_context("spawn"))

    def done(jobs: Jobs) -> list[Any]:
        waiting = [pool.schedule(_done, (pickle.dumps(job),)) for job in jobs]
        return [pickle.loads(each.result()) for each in waiting]

    try:
        yield done
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _done(job: bytes) -> bytes:
    return pickle.dumps(pickle.loads(job)())  # tensors in bytes are not shared between processes
