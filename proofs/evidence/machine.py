"""Describes the machine that a benchmark runs on, and applies torch's settings for the run."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

_CPU_INFO = Path("/proc/cpuinfo")
_HALF_PRECISION = (
    "avx512_bf16",
    "amx_bf16",
    "avx512_fp16",
    "amx_fp16",
    "bf16",
)  # as Linux calls them; the last is Arm's

# mallopt(3)'s M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_MAX: during a benchmark, and as they are by default.
_MALLOC_OPTIONS = {-1: (-1, 128 * 2**10), -2: (64 * 2**20, 128 * 2**10), -4: (0, 65_536)}


@dataclass(frozen=True)
class Machine:
    """Where and when a benchmark ran.

    Attributes:
        processor: Name of the processor.
        instructions: The vector instructions that torch uses.
        cores: Cores that this process may use.
        threads: Threads that torch uses.
        gpu: Name of the GPU that it ran on, or None.
        system: Operating system.
        python: Version of Python.
        torch_version: Its version.
        date: The day, in UTC.
        load: Processes that wanted to run in the minute before, or None where the system does not say. Other programs
            make short parallel calls wait for their turn, so times of a busy machine mean little.
    """

    processor: str
    instructions: str
    cores: int
    threads: int
    gpu: str | None
    system: str
    python: str
    torch_version: str
    date: str
    load: float | None

    @classmethod
    def here(cls, device: torch.device) -> Machine:
        """This machine, now."""
        return cls(
            processor=_processor(),
            instructions=torch.backends.cpu.get_cpu_capability(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            gpu=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
            system=platform.system(),
            python=platform.python_version(),
            torch_version=str(torch.__version__),
            date=datetime.now(UTC).date().isoformat(),
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        )

    def __str__(self) -> str:
        processor = f"{self.processor}, {self.cores} cores, {self.threads} threads, {self.instructions}"
        gpu = "" if self.gpu is None else f"{self.gpu}, "
        load = "" if self.load is None else f", load {self.load:.1f} before the run"
        return f"{gpu}{processor}, torch {self.torch_version}, {self.date}{load}"

    def to_json(self) -> dict[str, Any]:
        """The machine as plain data."""
        return asdict(self)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Lets the C library keep freed memory, where it is glibc, for as long as the context lasts.

    Otherwise it gives large blocks back to the system and gets them again, page by page, whenever a limit happens to
    be crossed. A call can then take several times as long, the convolution like the attention, and no ratio of two
    calls means anything.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if platform.libc_ver()[0] == "glibc" else None
    if mallopt is None:
        yield
        return
    for option, (kept, _) in _MALLOC_OPTIONS.items():
        mallopt(option, kept)
    try:
        yield
    finally:
        for option, (_, usual) in _MALLOC_OPTIONS.items():
            mallopt(option, usual)


@contextmanager
def torch_settings(*, threads: int | None, tf32: bool) -> Iterator[None]:
    """Threads, and whether a GPU may round float32 factors to 10 bits (TF32), for as long as the context lasts."""
    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before[1:]


def cpu_features() -> str:
    """What torch's kernels depend on: vector instructions, those for half precision, and a limit that the user set."""
    known = _cpu_info("flags", "Features")
    if known is None:
        half = "instructions for half precision not known"
    else:
        half = ", ".join(name for name in _HALF_PRECISION if name in known.split()) or "none for half precision"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    return f"{torch.backends.cpu.get_cpu_capability()}, {half}{'' if limit is None else f', oneDNN up to {limit}'}"


def _processor() -> str:
    """The processor's name, where the system tells it."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def _cpu_info(*keys: str) -> str | None:
    """The first value of one of these keys in the system's description of the processor, where there is one."""
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in keys and value.strip():
                return value.strip()
    return None
