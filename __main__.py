"""``python -m conv2attn``, and where both programs start: interrupts are heard before what takes time is imported."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """``conv2attn``."""
    _hear_interrupts()
    from .cli import main

    _hear_interrupts(signal.default_int_handler)
    main()


def main_same() -> None:
    """``c2a-same``."""
    _hear_interrupts()
    from .cli import main_same

    _hear_interrupts(signal.default_int_handler)
    main_same()


def _end(number: int, _: object) -> None:
    """Ends the program, which has done nothing yet."""
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: interrupted; nothing was done\n")
    sys.stderr.flush()
    os._exit(128 + number)


def _hear_interrupts(handler: object = _end) -> None:
    """Sets the handler, unless whoever started the program had it ignore interrupts."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
