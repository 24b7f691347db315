"""Convolutions as torch computes them, to compare with, unless torch is known to get them wrong.

A comparison with a wrong reference says nothing. So while ``right_convolutions`` lasts, every ``F.conv2d`` and its
relatives of other axes, transposed or not, also one that a module calls inside a network, are those of
``engines/convolution.py``. Where torch's own is not to be trusted, that is written down,
so that it can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..autocast import autocast_dtype, rounded, without_autocast
from ..engines.convolution import Geometry, convolve, convolve_transposed, known_fault, result_size
from ..spec import reversed_pads

_FORWARD = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)

_Numbers = int | Sequence[int]


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
    """Takes the place of ``F.conv2d`` and its relatives."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self._faults = faults

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in _FORWARD:
            return self._convolve(*args, **(kwargs or {}))
        if func in _TRANSPOSED:
            return self._convolve_transposed(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _convolve(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: _Numbers = 1,
        padding: _Numbers | str = 0,
        dilation: _Numbers = 1,
        groups: int = 1,
    ) -> Tensor:
        axes = weight.ndim - 2
        batch, weight, bias = _rounded(input, weight, bias)
        x, zeros = _padded(batch, weight, padding, _each(dilation, axes))
        geometry = Geometry(_each(stride, axes), zeros, _each(dilation, axes), groups)
        self._note(known_fault(x, weight, geometry))
        with without_autocast(x.device):
            output = convolve(x, weight, bias, geometry)
        return output if input.ndim == weight.ndim else output.squeeze(0)

    def _convolve_transposed(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: _Numbers = 1,
        padding: _Numbers = 0,
        output_padding: _Numbers = 0,
        groups: int = 1,
        dilation: _Numbers = 1,
    ) -> Tensor:
        axes = weight.ndim - 2
        x, weight, bias = _rounded(input, weight, bias)
        geometry = Geometry(_each(stride, axes), _each(padding, axes), _each(dilation, axes), groups)
        added = _each(output_padding, axes)
        self._note(known_fault(x, weight, geometry, result_size(x, weight, geometry, added)))
        with without_autocast(x.device):
            output = convolve_transposed(x, weight, bias, geometry, added)
        return output if input.ndim == weight.ndim else output.squeeze(0)

    def _note(self, fault: str | None) -> None:
        if fault is not None and fault not in self._faults:
            self._faults.append(fault)


def _rounded(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The input as a batch, weight and bias, as autocast makes them."""
    batch = x if x.ndim == weight.ndim else x.unsqueeze(0)
    dtype = autocast_dtype(x.device)
    if dtype is None:
        return batch, weight, bias
    return rounded(batch, dtype), rounded(weight, dtype), None if bias is None else rounded(bias, dtype)


def _padded(
    x: Tensor, weight: Tensor, padding: _Numbers | str, dilation: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """The input, and the zeros to add at both ends; of uneven "same" padding, the rest is added here."""
    axes = weight.ndim - 2
    if padding == "valid":
        return x, (0,) * axes
    if not isinstance(padding, str):
        return x, _each(padding, axes)
    reach = [step * (taps - 1) for step, taps in zip(dilation, weight.shape[2:], strict=True)]
    return F.pad(x, reversed_pads((0, length % 2) for length in reach)), tuple(length // 2 for length in reach)


def _each(value: _Numbers, axes: int) -> tuple[int, ...]:
    """One number for each axis."""
    return (value,) * axes if isinstance(value, int) else tuple(value) * (axes // len(value))


def untrusted_note(faults: Sequence[str]) -> str | None:
    """What to tell of a comparison whose reference torch itself would have got wrong, or None."""
    if not faults:
        return None
    return f"torch's own convolution is not to be trusted here ({'; '.join(faults)}), so it was computed another way"
