"""Weights that a program of torch.export makes of integers, by the operators of torch.ao.

    dequantize_per_tensor.default(input, scale, zero_point, quant_min, quant_max, dtype)
    dequantize_per_channel.default(input, scales, zero_points, axis, quant_min, quant_max, dtype)

Both give single precision unless they are told another; the bounds are those of the rounding before.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .common.quantised import Numbers, dequantised, fits
from .common.stored import StoredTensor
from .node import Node, arguments, named, target

_ALL, _SLICES = (f"torch.ops.quantized_decomposed.dequantize_per_{each}.default" for each in ("tensor", "channel"))
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)
_POINTS = (torch.int64, torch.int32, torch.int8)


def dequantised_weight(
    maker: Node | None, keys: Mapping[str, str], tensors: Mapping[str, object]
) -> tuple[str, StoredTensor] | None:
    """The key of the integers that a node makes a weight of, and the weight; or None if it does not.

    Args:
        maker: The node that makes the weight.
        keys: The keys of the program's tensors, by their names in its graph.
        tensors: The tensors by key.
    """
    given = {} if maker is None else arguments(maker)
    if maker is None or target(maker) not in (_ALL, _SLICES) or "out_dtype" in given:
        return None
    key = keys.get(named(given, "input"))
    integers = tensors.get(key) if key is not None else None
    if key is None or not isinstance(integers, StoredTensor) or integers.flaw() or integers.dtype not in _INTEGERS:
        return None
    found = _scale(given) if target(maker) == _ALL else _scales(given, keys, tensors)
    if found is None or not all(fits(tuple(part.shape), integers.shape, found[2]) for part in found[:2]):
        return None
    scale, zero_point, axis = found
    return key, dequantised(integers, scale, zero_point, axis=axis)


def _scale(given: Mapping[str, object]) -> tuple[Numbers, Numbers, int] | None:
    scale, zero_point = given.get("scale"), given.get("zero_point")
    if not isinstance(scale, float) or type(zero_point) is not int or abs(zero_point) >= 2**31:
        return None
    return torch.tensor(scale), torch.tensor(zero_point), 0


def _scales(
    given: Mapping[str, object], keys: Mapping[str, str], tensors: Mapping[str, object]
) -> tuple[Numbers, Numbers, int] | None:
    scales, points = (tensors.get(keys.get(named(given, name), "")) for name in ("scales", "zero_points"))
    axis = given.get("axis")
    if type(axis) is not int or not (isinstance(scales, StoredTensor) and isinstance(points, StoredTensor)):
        return None
    if scales.flaw() or points.flaw() or scales.dtype != torch.float32 or points.dtype not in _POINTS:
        return None
    return scales, points, axis
