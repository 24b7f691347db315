"""The arithmetic that the certificate assumes, for as long as a campaign runs.

The certificate bounds sums of products, accumulated in at least binary32 in any order. A library may do something
else: round factors to TF32, add up half-precision numbers in half precision, or transform a convolution (Winograd,
Fourier). So these are switched off: TF32 and reduced accumulation by their flags, transforms by leaving convolutions to
torch's own kernels instead of cuDNN's and NNPACK's. What holds then does not say anything about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...convert.errors import ConversionError, first_line
from .machine import torch_settings

_REDUCED = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")


@contextmanager
def certified_arithmetic(*, threads: int | None = 1) -> Iterator[None]:
    """Switches off the arithmetic that the certificate excludes, such as TF32 and Winograd, within the context.

    Args:
        threads: One is the fastest for tiny layers, and its sums come in one order; None leaves the choice to torch.
    """
    matmul = torch.backends.cuda.matmul
    before = {name: getattr(matmul, name) for name in _REDUCED}
    with (
        torch_settings(threads=threads, tf32=False),
        torch.backends.cudnn.flags(enabled=False),
        torch.backends.nnpack.flags(enabled=False),
    ):
        try:
            for name in _REDUCED:
                setattr(matmul, name, False)
            yield
        finally:
            for name, value in before.items():
                setattr(matmul, name, value)


def check_device(device: str) -> None:
    """Refuses a device that cannot compute.

    Raises:
        ConversionError: It is none, or there is none here.
    """
    try:
        torch.zeros(1, device=device) + 1
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        raise ConversionError(f"the device {device!r} cannot be used: {first_line(error)}") from error
    if torch.device(device).type == "meta":
        raise ConversionError("the device 'meta' cannot be used: it has no values")
