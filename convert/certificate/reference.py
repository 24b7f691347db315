"""Reference convolutions: torch's own, unless torch is known to get them wrong.

A comparison with a wrong reference says nothing. So while ``right_convolutions`` lasts, every ``F.conv2d`` and its
relatives, also those that modules call inside a network, are those of ``engines/convolution.py``. Where torch's own is
not to be trusted, that is written down, so that it can be told.
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

Numbers = int | Sequence[int]


@contextmanager
def right_convolutions() -> Iterator[list[str]]:
    """Replaces torch's convolutions by correct ones while the context lasts.

    Yields:
        A list that grows: why torch's own convolutions were not to be trusted, each reason once.
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
        if func in (F.conv1d, F.conv2d, F.conv3d):
            return self._convolve(*args, **(kwargs or {}))
        if func in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
            return self._transposed(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _convolve(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Numbers = 1,
        padding: Numbers | str = 0,
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Tensor:
        x, weight, bias = _as_autocast(input, weight, bias)
        geometry = _geometry(weight.ndim - 2, stride, padding, dilation, groups)
        self._note(known_fault(x, weight, geometry))
        with without_autocast(x.device):
            return convolve(x, weight, bias, geometry)

    def _transposed(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        dilation: Numbers = 1,
    ) -> Tensor:
        x, weight, bias = _as_autocast(input, weight, bias)
        axes = weight.ndim - 2
        geometry, added = _geometry(axes, stride, padding, dilation, groups), _each(output_padding, axes)
        self._note(known_fault(x, weight, geometry, result_size(x, weight, geometry, added)))
        with without_autocast(x.device):
            return convolve_transposed(x, weight, bias, geometry, added)

    def _note(self, fault: str | None) -> None:
        if fault is not None and fault not in self._faults:
            self._faults.append(fault)


def _as_autocast(*tensors: Tensor | None) -> Any:
    """Input, weight and bias as autocast makes them."""
    dtype = None if tensors[0] is None else autocast_dtype(tensors[0].device)
    return tensors if dtype is None else [None if each is None else rounded(each, dtype) for each in tensors]


def _geometry(axes: int, stride: Numbers, padding: Numbers | str, dilation: Numbers, groups: int) -> Geometry:
    zeros = padding if isinstance(padding, str) else _each(padding, axes)
    return Geometry(_each(stride, axes), zeros, _each(dilation, axes), groups)


def _each(value: Numbers, axes: int) -> tuple[int, ...]:
    """One number for each axis."""
    return (value,) * axes if isinstance(value, int) else tuple(value) * (axes // len(value))


def untrusted_note(faults: Sequence[str]) -> str | None:
    """A sentence's part on a comparison whose reference torch itself would have got wrong, or None."""
    if not faults:
        return None
    return f"torch's own convolution is not to be trusted here ({'; '.join(faults)}), so it was computed another way"
