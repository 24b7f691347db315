"""Tensors that nodes make of others in the file, and of nothing else: what a weight comes through on its way to a node.

Constant, Identity, Cast to floating point, Transpose (as TensorFlow's exporter puts before channels-last weights),
Reshape, QuantizeLinear and DequantizeLinear. Numbers are made as the standard's reference makes them, when they are
wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..common.limits import MAX_DIMENSIONS
from ..common.made import made
from ..common.quantised import DEQUANTISED, dequantised, fits
from ..common.stored import StoredTensor
from .nodes import Node
from .scopes import Known
from .tensors import DTYPES

_MOST_STEPS = 16  # nodes that a weight comes through
_SCALING = (torch.float32, torch.float16, torch.bfloat16)
_QUANTISED = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)
_ROUNDED = "its weights went through QuantizeLinear, which rounds them, and DequantizeLinear"

Inputs = Sequence[Known | None]


def constant(node: Node, key: str) -> Known | None:
    """The tensor of a Constant, or None if it is text, sparse, not said, or said more than once.

    Args:
        node: The node.
        key: What the tensor is called.
    """
    for name, tensor in node.tensors.items() if len(node.messages) < 2 else ():
        if name in ("value", "value_float", "value_floats"):
            return Known(key, tensor, key)
    return None


def derived(node: Node, inputs: Inputs, key: str) -> Known | None:
    """What a node makes of tensors in the file, or None where that is not one of the things that are read.

    Args:
        node: A node of one of the ``DERIVING`` operators.
        inputs: Its inputs, as far as they are in the file.
        key: What the tensor is called.
    """
    first = inputs[0] if inputs else None
    if first is None or not isinstance(first.tensor, StoredTensor) or first.tensor.flaw() is not None:
        return None
    found = DERIVING[node.operator](node, first, first.tensor, inputs, key) if first.steps < _MOST_STEPS else None
    return None if found is None else found._replace(steps=first.steps + 1)


def plain(known: Known | None) -> Tensor | None:
    """The numbers of a tensor in the file, or None if it does not have them."""
    if known is None or not isinstance(known.tensor, StoredTensor) or known.tensor.flaw() is not None:
        return None
    return known.tensor.read()


def _numbers(inputs: Inputs, number: int) -> Tensor | None:
    return plain(inputs[number]) if number < len(inputs) else None


def _identity(_: Node, first: Known, __: StoredTensor, ___: Inputs, ____: str) -> Known:
    return first


def _cast(node: Node, first: Known, tensor: StoredTensor, _: Inputs, key: str) -> Known | None:
    dtype = DTYPES.get(node.integer("to", 0) or 0)
    if dtype == tensor.dtype:
        return first
    if dtype is None or not dtype.is_floating_point or tensor.dtype.is_complex or dtype.itemsize == 1:
        return None
    wanted = dtype

    def make() -> Tensor:
        return torch.empty(tensor.shape, dtype=wanted).copy_(tensor.read())

    return first._replace(key=key, tensor=made(tensor.storage.source, dtype, tensor.shape, make))


def _transpose(node: Node, first: Known, tensor: StoredTensor, _: Inputs, key: str) -> Known | None:
    axes = list(range(len(tensor.shape)))
    order = node.attributes.get("perm", axes[::-1])
    if not isinstance(order, list) or sorted(order) != axes:
        return None
    stride = tensor.stride or [math.prod(tensor.shape[axis + 1 :]) for axis in axes]
    shape = [tensor.shape[axis] for axis in order]
    turned = StoredTensor.of(
        tensor.storage, tensor.dtype, shape=shape, stride=[stride[axis] for axis in order], first=tensor.first
    )
    return first._replace(key=key, tensor=turned)


def _reshape(node: Node, first: Known, tensor: StoredTensor, inputs: Inputs, key: str) -> Known | None:
    wanted = _numbers(inputs, 1)
    if wanted is None or wanted.dtype != torch.int64 or wanted.ndim != 1 or len(wanted) > MAX_DIMENSIONS:
        return None
    shape = _new_shape(wanted.tolist(), tensor.shape, zero_is_copied=not node.integer("allowzero", 0))
    if shape is None:
        return None
    if tensor.stride is None:
        reshaped = StoredTensor.of(tensor.storage, tensor.dtype, shape=shape, first=tensor.first)
    else:
        reshaped = made(tensor.storage.source, tensor.dtype, tuple(shape), lambda: tensor.read().contiguous())
    return first._replace(key=key, tensor=reshaped)


def _new_shape(wanted: list[int], shape: tuple[int, ...], *, zero_is_copied: bool) -> list[int] | None:
    """The shape that Reshape gives: 0 copies a size, -1 is what is left over."""
    if zero_is_copied and any(size == 0 and axis >= len(shape) for axis, size in enumerate(wanted)):
        return None
    sizes = [shape[axis] if zero_is_copied and size == 0 else size for axis, size in enumerate(wanted)]
    count, known = math.prod(shape), math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known:
        sizes = [count // known if size == -1 else size for size in sizes]
    return sizes if all(size >= 0 for size in sizes) and math.prod(sizes) == count else None


def _quantisation(node: Node, tensor: StoredTensor, inputs: Inputs) -> tuple[Tensor, Tensor | None, int] | None:
    """The scale, the zero point and the axis of a node, or None if they are not one number, or one for each slice."""
    scale, zero_point = _numbers(inputs, 1), _numbers(inputs, 2)
    axis = node.integer("axis", 1)
    if scale is None or scale.dtype not in _SCALING or axis is None or node.integer("block_size", 0) != 0:
        return None
    if node.input(2) and (zero_point is None or zero_point.shape != scale.shape):
        return None
    return (scale, zero_point, axis) if fits(tuple(scale.shape), tensor.shape, axis) else None


def _dequantize(node: Node, first: Known, tensor: StoredTensor, inputs: Inputs, key: str) -> Known | None:
    found = _quantisation(node, tensor, inputs)
    if found is None or tensor.dtype not in _QUANTISED or "output_dtype" in node.attributes:
        return None
    scale, zero_point, axis = found
    if zero_point is not None and zero_point.dtype != tensor.dtype:
        return None
    numbers = dequantised(tensor, scale, zero_point, axis=axis, dtype=scale.dtype)
    return first._replace(key=key, tensor=numbers, note=first.note or DEQUANTISED)


def _quantize(node: Node, first: Known, tensor: StoredTensor, inputs: Inputs, key: str) -> Known | None:
    found = _quantisation(node, tensor, inputs)
    if found is None or tensor.dtype != torch.float32 or {"output_dtype", "precision"} & node.attributes.keys():
        return None
    scale, zero_point, axis = found
    dtype = torch.uint8 if zero_point is None else zero_point.dtype
    if dtype not in (torch.int8, torch.uint8) or scale.dtype != torch.float32:
        return None

    def make() -> Tensor:
        return _quantised(tensor.read(), scale, zero_point, axis, dtype)

    numbers = made(tensor.storage.source, dtype, tensor.shape, make, spare=4 * tensor.numel)
    return first._replace(key=key, tensor=numbers, note=_ROUNDED)


def _quantised(numbers: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    """Rounds x / scale half to even, adds the zero point and saturates."""
    shape = [1] * numbers.ndim
    if scale.numel() > 1:
        shape[axis] = scale.numel()
    rounded = (numbers / scale.reshape(shape)).round_()
    if zero_point is not None:
        rounded += zero_point.reshape(shape).float()
    allowed = torch.iinfo(dtype)
    return rounded.clamp_(allowed.min, allowed.max).to(dtype)


_Derive = Callable[[Node, Known, StoredTensor, Inputs, str], Known | None]
DERIVING: dict[str, _Derive] = {
    "Identity": _identity,
    "Cast": _cast,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
"""What makes a tensor of others, by operator."""
