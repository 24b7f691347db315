"""Steps that must not be left halfway: a signal that comes meanwhile is heard after them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_HANGUP = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # which not every system has
_ENDING = (signal.SIGINT, signal.SIGTERM, *_HANGUP)  # which by themselves, or by their handlers, end a run

Interruptible = Callable[[], AbstractContextManager[None]]


@contextmanager
def uninterrupted() -> Iterator[Interruptible]:
    """Keeps SIGINT, SIGTERM and SIGHUP until the context is left, but in the inner contexts that it gives.

    Python runs handlers in the main thread only; in any other, nothing is done.
    """
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    if threading.current_thread() is not threading.main_thread() or None in handlers.values():
        yield nullcontext
        return
    heard: list[int] = []

    def keep() -> None:
        for number in _ENDING:
            signal.signal(number, lambda number, _: heard.append(number))

    def hear() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        while heard:
            signal.raise_signal(heard.pop())

    @contextmanager
    def interruptible() -> Iterator[None]:
        try:
            hear()
            yield
        finally:
            keep()

    try:
        keep()
        yield interruptible
    finally:
        hear()
