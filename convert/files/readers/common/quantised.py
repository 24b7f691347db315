"""Integers that stand for numbers: x = (q - zero point) * scale, for a whole tensor or for each slice along an axis.

The numbers are computed as those who defined them do. ONNX, and PyTorch with one scale: q and the zero point in single
precision, which is exact for integers of up to 24 bits, and one rounded product with the scale. PyTorch with a scale
for each slice, which it keeps in double precision: all in that, and then rounded.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .made import made
from .stored import StoredTensor

_AT_ONCE = 2**16  # numbers that are in double precision at once; or one slice of the first axis, if it has more

Numbers = Tensor | StoredTensor
"""Scales and zero points; those in a file are read when they are needed."""
DEQUANTISED = "its weights were stored as integers, and are dequantised: (integer - zero point) * scale"
ROUNDING = "what computes with them rounds its input and its result to integers, which the layer does not"


def dequantised(
    integers: StoredTensor,
    scale: Numbers,
    zero_point: Numbers | None,
    *,
    axis: int = 0,
    dtype: torch.dtype = torch.float32,
) -> StoredTensor:
    """What a tensor of integers stands for.

    Args:
        integers: The integers q.
        scale: One number, or one for each slice of the axis; in double precision, so is the product.
        zero_point: Likewise; None is 0.
        axis: The axis of the slices.
        dtype: The precision of the result.
    """
    row = math.prod(integers.shape[1:])
    rows = max(_AT_ONCE // max(row, 1), 1)

    def make() -> Tensor:
        given = integers.read()  # before anything is allocated
        numbers = torch.empty(integers.shape, dtype=torch.float32)
        scales, points = (_along(each, len(integers.shape), axis) for each in (scale, zero_point))
        if scales.dtype != torch.float64:
            numbers.copy_(given).sub_(points.float()).mul_(scales.float())
            return numbers.to(dtype)
        scales, points = scales.expand_as(given), points.expand_as(given)
        for first in range(0, len(numbers), rows):
            at = slice(first, first + rows)
            numbers[at] = given[at].double().sub_(points[at]).mul_(scales[at])
        return numbers.to(dtype)

    spare = 0 if dtype == torch.float32 else 4 * integers.numel
    if scale.dtype == torch.float64:
        spare += 8 * min(rows * row, integers.numel)
    return made(integers.storage.source, dtype, integers.shape, make, spare=spare)


def fits(values: tuple[int, ...], shape: tuple[int, ...], axis: int) -> bool:
    """Whether scales or zero points of a shape are one number, or one for each slice of an axis of another shape."""
    if values in ((), (1,)):
        return True
    return -len(shape) <= axis < len(shape) and values == (shape[axis],)


def _along(given: Numbers | None, dimensions: int, axis: int) -> Tensor:
    """Scales or zero points, shaped to go with the slices of an axis; none are zeros."""
    values = torch.zeros(()) if given is None else given.read() if isinstance(given, StoredTensor) else given
    shape = [1] * dimensions
    if values.numel() > 1:
        shape[axis] = len(values)
    return values.reshape(shape)
