"""Convolutions as torch computes them, to compare with, unless torch is known to get them wrong.

A comparison with a wrong reference says nothing. So while ``right_convolutions`` lasts, every ``F.conv2d``, also one
that ``nn.Conv2d`` calls inside a network, is the one of ``engines/convolution.py``. Where torch's own is not to be
trusted, that is written down, so that it can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..autocast import autocast_dtype, rounded, without_autocast
from ..engines.convolution import Geometry, convolve, known_fault


@contextmanager
def right_convolutions() -> Iterator[list[str]]:
    """Convolutions that are right, for as long as the context lasts.

    Yields:
        A list that grows: what convolutions torch's own was not to be trusted with, in words, each once.
    """
    faults: list[str] = []
    with _RightConvolutions(faults):
        yield faults


class _RightConvolutions(TorchFunctionMode):
    """Takes the place of ``F.conv2d``."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self._faults = faults

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is not F.conv2d:
            return func(*args, **(kwargs or {}))
        return self._convolve(*args, **(kwargs or {}))

    def _convolve(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
    ) -> Tensor:
        dtype = autocast_dtype(input.device)
        if dtype is not None:
            input, weight = rounded(input, dtype), rounded(weight, dtype)
            bias = None if bias is None else rounded(bias, dtype)
        x, zeros = _padded(input, weight, padding, _pair(dilation))
        geometry = Geometry(_pair(stride), zeros, _pair(dilation), groups)
        fault = known_fault(x, weight, geometry)
        if fault is not None and fault not in self._faults:
            self._faults.append(fault)
        with without_autocast(x.device):
            output = convolve(x, weight, bias, geometry)
        return output if input.ndim == 4 else output.squeeze(0)


def _padded(
    x: Tensor, weight: Tensor, padding: int | tuple[int, ...] | str, dilation: tuple[int, int]
) -> tuple[Tensor, tuple[int, int]]:
    """The input as a batch, and the zeros to add at both ends; of uneven "same" padding, the rest is added here."""
    batch = x if x.ndim == 4 else x.unsqueeze(0)
    if padding == "valid":
        return batch, (0, 0)
    if not isinstance(padding, str):
        return batch, _pair(padding)
    rows, columns = (dilation[axis] * (weight.shape[2 + axis] - 1) for axis in (0, 1))
    return F.pad(batch, (0, columns % 2, 0, rows % 2)), (rows // 2, columns // 2)


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    rows, columns = (value, value) if isinstance(value, int) else tuple(value) * (2 // len(value))
    return rows, columns


def untrusted_note(faults: Sequence[str]) -> str | None:
    """What to tell of a comparison whose reference torch itself would have got wrong, or None."""
    if not faults:
        return None
    return f"torch's own convolution is not to be trusted here ({'; '.join(faults)}), so it was computed another way"
