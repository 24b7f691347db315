"""Processes that end with the one that started them, however it ends, and that leave an interrupt to it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def end_with_parent() -> None:
    """Ends this process as soon as its parent has ended, also where that was killed and could do nothing about it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
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
