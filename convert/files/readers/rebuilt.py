"""Tensors that a pickle rebuilds, by the arguments that it gives to the functions of ``torch._utils``.

Quantised tensors, of one scale and zero point or of one for each slice of an axis, are what their integers stand for.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import Parameter

from ...errors import CheckpointError
from .common.quantised import Numbers, dequantised, fits
from .common.stored import DTYPES, OddTensor, Storage, StoredTensor
from .pickle_machine import Name

QUANTISED = {"torch.QInt8Storage": torch.int8, "torch.QUInt8Storage": torch.uint8, "torch.QInt32Storage": torch.int32}
"""The dtype of the integers in each kind of storage of quantised tensors."""
_ALL, _SLICES = "torch.per_tensor_affine", "torch.per_channel_affine"
_OWN = frozenset(  # what an attribute of a tensor sets in the tensor itself, such as its data, instead of beside it
    name for cls in Parameter.__mro__ for name, part in vars(cls).items() if hasattr(type(part), "__set__")
)


class Typed(NamedTuple):
    """A storage with the dtype that a tensor over it has.

    Attributes:
        storage: The storage.
        dtype: The dtype.
        is_quantised: Whether its integers stand for other numbers.
    """

    storage: Storage
    dtype: torch.dtype
    is_quantised: bool


def plain_tensor(name: str, arguments: tuple[object, ...]) -> StoredTensor | OddTensor:
    """_rebuild_tensor(storage, first, shape, stride), v2 with (..., gradient, hooks, metadata), v3 with a dtype.

    Raises:
        CheckpointError: The arguments describe no tensor.
    """
    if len(arguments) < 4:
        raise CheckpointError("its pickle describes a tensor by too little")
    typed, first, shape, stride = arguments[:4]
    if isinstance(typed, OddTensor):
        return typed
    if not isinstance(typed, Typed):
        raise CheckpointError("its pickle describes a tensor without a storage")
    if typed.is_quantised:
        return OddTensor("quantized or unknown (without its scale)")
    dtype, metadata = typed.dtype, arguments[6:]
    if name == "_rebuild_tensor_v3":
        given, metadata = arguments[6] if len(arguments) > 6 else None, arguments[7:]
        known = DTYPES.get(given.path.removeprefix("torch.")) if isinstance(given, Name) else None
        if known is None:
            return OddTensor(f"packed or unknown ({given.path if isinstance(given, Name) else 'no dtype'})")
        dtype = known
    if metadata and metadata[0]:
        return OddTensor("conjugated or negated")
    return StoredTensor.of(typed.storage, dtype, shape=shape, stride=stride, first=first)


def check_notes(states: tuple[object, ...]) -> None:
    """Lets pass what a program has noted on a tensor, which PyTorch sets as the tensor's attributes.

    Args:
        states: What a pickle gives: a dictionary, or one and another of slots, or nothing.

    Raises:
        CheckpointError: One of them would change the tensor.
    """
    for state in states:
        for part in state if isinstance(state, tuple) else (state,):
            if part is not None and not (isinstance(part, dict) and part.keys().isdisjoint(_OWN)):
                raise CheckpointError("its pickle gives a tensor attributes that change it after it was made")


def quantised_tensor(arguments: tuple[object, ...]) -> StoredTensor | OddTensor:
    """_rebuild_qtensor(storage, first, shape, stride, quantiser, ...), as single precision.

    Raises:
        CheckpointError: The arguments describe no tensor.
    """
    if len(arguments) < 5:
        raise CheckpointError("its pickle describes a tensor by too little")
    typed, first, shape, stride, quantiser = arguments[:5]
    if not isinstance(typed, Typed) or not typed.is_quantised:
        return OddTensor("quantized or unknown (its storage is not of integers)")
    integers = StoredTensor.of(typed.storage, typed.dtype, shape=shape, stride=stride, first=first)
    given = _quantiser(quantiser) if isinstance(quantiser, tuple) else None
    if given is None:
        return OddTensor("quantized or unknown (its scale is not one number, or one for each slice)")
    scale, zero_point, axis = given
    if isinstance(scale, StoredTensor) and not 0 <= axis < len(integers.shape):
        raise CheckpointError("a quantised tensor has scales along an axis that it lacks")
    if not all(fits(tuple(part.shape), integers.shape, axis) for part in (scale, zero_point)):
        raise CheckpointError("a quantised tensor has another number of scales than of slices")
    return dequantised(integers, scale, zero_point, axis=axis)


def _quantiser(given: tuple[object, ...]) -> tuple[Numbers, Numbers, int] | None:
    """Scales, zero points and the axis that they are for, if they are numbers, or tensors of a number a slice."""
    kind = given[0] if given else None
    if not isinstance(kind, Name):
        return None
    if kind.path == _ALL and len(given) == 3:
        scale, zero_point = given[1:]
        if type(scale) is not float or type(zero_point) is not int or abs(zero_point) >= 2**31:
            return None
        return torch.tensor(scale), torch.tensor(zero_point), 0
    if kind.path == _SLICES and len(given) == 4:
        scales, points, axis = given[1:]
        if type(axis) is int and isinstance(scales, StoredTensor) and isinstance(points, StoredTensor):
            return (scales, points, axis) if (scales.dtype, points.dtype) == (torch.float64, torch.int64) else None
    return None
