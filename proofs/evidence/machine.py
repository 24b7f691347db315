"""Describes the machine that a run is on, in a line."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

import torch


def describe_machine(device: torch.device | str) -> str:
    """The processor, what torch's kernels depend on, the versions and the day (in UTC)."""
    gpu = [torch.cuda.get_device_name(device)] if torch.device(device).type == "cuda" else []
    parts = [
        *gpu,
        str(torch.cpu.get_capabilities().get("cpu_name", platform.machine())),
        f"{core_count()} cores",
        f"{torch.get_num_threads()} threads",
        torch.backends.cpu.get_cpu_capability(),
        f"torch {torch.__version__}",
        f"conv2attn {metadata.version('conv2attn')}",
        datetime.now(UTC).date().isoformat(),
    ]
    return ", ".join(parts)


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
