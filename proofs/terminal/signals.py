"""Signals that end a run, so that it cleans up as after an error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = [
    signal.SIGTERM,
    *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []),
]  # a closed terminal sends the latter


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Makes these signals raise SystemExit, and restores their former handlers afterwards."""
    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores one
    before = [signal.signal(number, _end) for number in heard]
    try:
        yield
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)


def _end(number: int, _: object) -> None:
    """Ends the run as an error would, so that nothing is left behind."""
    sys.exit(128 + number)
