"""Describes the machine that a run is on, in a line."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

import torch

_HALF_PRECISION = ("avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16")


def describe_machine(device: torch.device | str) -> str:
    """The processor, what torch's kernels depend on, torch's version and the day (in UTC)."""
    found = torch.cpu.get_capabilities()
    half = ", ".join(name for name in _HALF_PRECISION if found.get(name)) or "none for half precision"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None
    parts = [
        *([] if gpu is None else [gpu]),
        str(found.get("cpu_name", platform.machine())),
        f"{core_count()} cores",
        f"{torch.get_num_threads()} threads",
        f"{torch.backends.cpu.get_cpu_capability()} ({half}{'' if limit is None else f', oneDNN up to {limit}'})",
        f"torch {torch.__version__}",
        datetime.now(UTC).date().isoformat(),
    ]
    return ", ".join(parts)


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
