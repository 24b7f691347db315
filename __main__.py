"""``python -m conv2attn``, and where both programs start: interrupts are heard before what takes time is imported."""

from __future__ import annotations

import os
import signal
import sys
from types import ModuleType


def main() -> None:
    """``conv2attn``."""
    _cli().main()


def main_same() -> None:
    """``c2a-same``."""
    _cli().main_same()


def _cli() -> ModuleType:
    """The command line, with all that it imports."""
    _hear_interrupts(_end)
    from . import cli

    _hear_interrupts(signal.default_int_handler)
    return cli


def _end(number: int, _: object) -> None:
    """Ends the program, which has done nothing yet."""
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: interrupted; nothing was done\n")
    sys.stderr.flush()
    os._exit(128 + number)


def _hear_interrupts(handler: object) -> None:
    """Sets the handler, unless whoever started the program had it ignore interrupts."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
