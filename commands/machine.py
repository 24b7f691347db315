"""How a command uses the machine: threads that sleep while they wait, and memory that is kept for the next operation.

OpenMP's threads spin between operations. Where another program has the processor, they spin in its time: one
verification took 31 seconds of the processor, and 6 with threads that sleep. And glibc gives large blocks back to the
system and asks for them again, page by page, which can take longer than a convolution.

Libraries are left as they are: only commands choose this, and only where the user has not.
"""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_KEPT = 2**31 - 1  # bytes, the largest number that mallopt takes
_AT_ONCE = 2**28  # bytes asked of the system at once


def prepare() -> None:
    """Prepares this process, before torch is imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_memory()


def use_threads(count: int) -> None:
    """Makes torch compute with this number of threads, whether it is imported yet or not."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def keep_memory() -> bool:
    """Has glibc keep the memory that is freed; returns whether it does. Variables of the user's come first."""
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in os.environ):
        return False
    if "CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", ()):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _AT_ONCE), (_MMAP_MAX, 0)
    return [mallopt(name, value) for name, value in settings] == [1, 1, 1]
