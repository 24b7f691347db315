"""ONNX tensors as tensors of PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from torch import Tensor

_BY_BITS = {
    name: getattr(torch, name)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_NARROW = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}  # integers that share a byte in files


def read_tensor(proto: TensorProto) -> Tensor | None:
    """The tensor that a TensorProto describes, or None if PyTorch has no dtype for it, as for text.

    Raises:
        Exception: Whatever onnx raises for numbers that do not have the tensor's shape.
    """
    return as_tensor(numpy_helper.to_array(proto))


def as_tensor(array: object) -> Tensor | None:
    """A copy of an array, also of the dtypes that onnx adds to NumPy's; None if PyTorch has no such dtype."""
    numbers: NDArray[np.generic] = np.array(array)  # a copy: arrays over a file's bytes cannot be written to
    name = numbers.dtype.name
    if name in _BY_BITS:
        return torch.from_numpy(numbers.reshape(-1).view(np.uint8)).view(_BY_BITS[name]).reshape(numbers.shape)
    if name in _NARROW:
        numbers = numbers.astype(_NARROW[name])
    return torch.from_numpy(numbers) if numbers.dtype.kind in "biufc" and numbers.dtype.isnative else None
