"""The machine: its description, and torch switched to the arithmetic that the certificate assumes.

The certificate bounds sums of products, accumulated in at least binary32 in any order. A library may do something
else: round factors to TF32, add up half-precision numbers in half precision, or transform a convolution (Winograd,
Fourier). So these are switched off: TF32 and reduced accumulation by their flags, transforms by leaving convolutions to
torch's own kernels instead of cuDNN's and NNPACK's. What holds then does not say anything about them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

from ...convert.errors import ConversionError, first_line

_EXCLUDED = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")


def describe_machine(device: torch.device | str) -> str:
    """The processor, what torch's kernels depend on, the versions and the day (in UTC)."""
    gpu = [torch.cuda.get_device_name(device)] if torch.device(device).type == "cuda" else []
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.10 does not have it
    parts = [
        *gpu,
        str(capabilities.get("cpu_name", platform.machine())),
        f"{core_count()} cores",
        f"{torch.get_num_threads()} thread{'s' * (torch.get_num_threads() != 1)}",
        torch.backends.cpu.get_cpu_capability(),
        f"torch {torch.__version__}",
        f"conv2attn {metadata.version('conv2attn')}",
        datetime.now(UTC).date().isoformat(),
    ]
    return ", ".join(parts)


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def certified_arithmetic(*, threads: int | None = 1) -> Iterator[None]:
    """Switches off the arithmetic that the certificate excludes, such as TF32 and Winograd, within the context.

    Args:
        threads: One is the fastest for tiny layers, and its sums come in one order; None leaves the choice to torch.
    """
    matmul, used = torch.backends.cuda.matmul, torch.get_num_threads()
    before = {name: getattr(matmul, name) for name in _EXCLUDED}
    with torch.backends.cudnn.flags(enabled=False, allow_tf32=False), torch.backends.nnpack.flags(enabled=False):
        try:
            torch.set_num_threads(threads or used)
            for name in _EXCLUDED:
                setattr(matmul, name, False)
            yield
        finally:
            torch.set_num_threads(used)
            for name, value in before.items():
                setattr(matmul, name, value)


def check_device(device: str) -> None:
    """Refuses a device that cannot compute.

    Raises:
        ConversionError: It is no device, or not available.
    """
    try:
        torch.zeros(1, device=device) + 1
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        raise ConversionError(f"the device {device!r} cannot be used: {first_line(error)}") from error
    if torch.device(device).type == "meta":
        raise ConversionError("the device 'meta' cannot be used: it has no values")
