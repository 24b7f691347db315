"""Counts the memory that a call holds beside its arguments.

On a CPU: every block that torch's allocator hands out or takes back during the call, as torch's profiler records them.
That includes what a kernel allocates for itself inside torch (reordered weights, padded copies, the scratch memory of
oneDNN) and excludes what a library gets from the system by itself (the packing buffers of a matrix product).
On a GPU: the most that torch's caching allocator had handed out at one time, less what it had before.
"""

from __future__ import annotations

import os
from itertools import accumulate
from typing import Any

import torch
from torch.autograd.profiler import profile

from .timing import Call

_BLOCK = "[memory]"  # the name of the profiler's record of an allocation (positive) or a release (negative)
_SILENT = "99"  # above every level of message that the profiler prints on stderr


def peak_bytes(call: Call, *, device: torch.device) -> int:
    """The most bytes that were allocated at one time during one call, the result included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = int(torch.cuda.memory_allocated(device))
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
    with profile(profile_memory=True) as profiler:
        call()
    results: Any = profiler.kineto_results
    blocks = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == _BLOCK)
    return max(accumulate((int(count) for _, count in blocks), initial=0))
