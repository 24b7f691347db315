"""Convolutions that nodes compute: Conv, ConvTranspose, and those over integers, whose weights are dequantised.

QLinearConv is a convolution of the numbers that its integers stand for, with input and result rounded to integers; the
layer is the convolution without the rounding. ConvInteger has no scale: it convolves its input less a zero point by its
weight less a zero point. Later nodes multiply its result by a scale, which is taken into the weight where it is found:

    Cast(ConvInteger(x, w) + bias) * (scale of x * scale of w),     the scale of x computed, that of w in the file
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from onnx import NodeProto, helper
from torch import Tensor

from ..described import DescribedConvolution, describe
from .geometry import plain_geometry, transposed_geometry
from .load import OWN_DOMAINS
from .scopes import DEQUANTISED, Constant, Scope

CONVOLUTIONS = (
    *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"),
    *("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConvTranspose", "CausalConvWithState"),  # of ONNX Runtime
)
"""Operators that are convolutions of some kind, of any domain."""
_ROUNDING = "the node rounds its input and its result to integers, which the layer does not"
_SCALED = f"{DEQUANTISED}; nodes beside it round its input, and may add a bias"
_NO_SCALE = "its weights are the node's integers less their zero point; later nodes apply the scale"


class RefusedError(Exception):
    """Says why a node's convolution cannot be described."""


@dataclass(frozen=True)
class _Parts:
    """Weight and bias of a node, and a remark on them."""

    weight: Constant
    bias: Constant | None = None
    note: str | None = None


def convolution(node: NodeProto, scope: Scope) -> tuple[DescribedConvolution, list[Constant]]:
    """The convolution that a node computes.

    Args:
        node: A node of one of the ``CONVOLUTIONS``.
        scope: The graph that it lies in.

    Returns:
        The convolution, and the tensors that it names.
    """
    try:
        if node.domain not in OWN_DOMAINS:
            raise RefusedError(f"it is an operator of {node.domain[:100]!r}, not of ONNX")
        if node.op_type not in _PARTS:
            raise RefusedError(f"{node.op_type} is not a plain convolution")
        parts = _PARTS[node.op_type](node, scope)
        used = [parts.weight, *([] if parts.bias is None else [parts.bias])]
        geometry = _geometry(node, parts.weight.tensor, scope)
    except RefusedError as reason:
        return DescribedConvolution.refused(str(reason)), []
    tensors = {constant.key: constant.tensor for constant in used}
    bias = None if parts.bias is None else parts.bias.key
    described = describe(tensors, parts.weight.key, bias, geometry, uneven=True)
    notes = [text for text in (parts.weight.note, parts.note) if text is not None]
    return replace(described, note="; ".join(notes) or None), used


def input_name(node: NodeProto, number: int) -> str:
    """Name of a node's input; "" if it is left out."""
    return str(node.input[number]) if number < len(node.input) else ""


def _geometry(node: NodeProto, weight: Tensor, scope: Scope) -> dict[str, object]:
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    kernel = list(weight.shape[2:])
    if attributes.get("kernel_shape", kernel) != kernel:
        raise RefusedError("its weight does not have the shape of its kernel")
    if node.op_type == "ConvTranspose":
        found = transposed_geometry(attributes, kernel, scope.size(node.input[0]))
    else:
        found = plain_geometry(attributes, kernel)
    if isinstance(found, str):
        raise RefusedError(found)
    return found


def _known(node: NodeProto, scope: Scope, number: int, role: str) -> Constant:
    """One of a node's inputs."""
    found = scope.constant(input_name(node, number))
    if isinstance(found, str):
        raise RefusedError(f"its {role} is {found}")
    return found


def _plain_parts(node: NodeProto, scope: Scope) -> _Parts:
    """X, W, and a bias."""
    bias = _known(node, scope, 2, "bias") if input_name(node, 2) else None
    return _Parts(_known(node, scope, 1, "weight"), bias)


def _integer_parts(node: NodeProto, scope: Scope) -> _Parts:
    """X, W, the zero points of X and of W."""
    integers = _integers(node, scope, 1)
    scale = _channel_scale(_later_factor(node, scope), integers.tensor.shape[0])
    note = _NO_SCALE if scale is None else _SCALED
    return _Parts(_dequantised(node, scope, integers, torch.ones(()) if scale is None else scale, 3), note=note)


def _quantised_parts(node: NodeProto, scope: Scope) -> _Parts:
    """X with scale and zero point, W with both, both of the result, and a bias of int32 in units of their product."""
    integers, scale = _integers(node, scope, 3), _known(node, scope, 4, "weight's scale").tensor
    if scale.dtype != torch.float32 or not _fits(scale, integers.tensor):
        raise RefusedError("the scale of its weight is not one number of float32, or one for each channel")
    weight, note = _dequantised(node, scope, integers, scale, 5), f"{DEQUANTISED}; {_ROUNDING}"
    if not input_name(node, 8):
        return _Parts(weight, note=note)
    bias, input_scale = _known(node, scope, 8, "bias"), _known(node, scope, 1, "input's scale").tensor
    if input_scale.dtype != torch.float32 or input_scale.numel() != 1:
        raise RefusedError("the scale of its input, which its bias is in, is not one number of float32")
    if bias.tensor.dtype != torch.int32 or not _fits(scale, bias.tensor):
        raise RefusedError("its bias is not one number of int32 for each channel")
    numbers = (bias.tensor.double() * input_scale.double().reshape(()) * scale.double()).float()
    return _Parts(weight, replace(bias, key=f"{weight.key} (bias)", tensor=numbers), note)


def _integers(node: NodeProto, scope: Scope, number: int) -> Constant:
    """A weight of integers, of at least one dimension."""
    weight = _known(node, scope, number, "weight")
    if weight.tensor.dtype not in (torch.int8, torch.uint8) or not weight.tensor.ndim:
        raise RefusedError(f"its weight is of {weight.tensor.dtype}, not of integers of 8 bits")
    return weight


def _dequantised(node: NodeProto, scope: Scope, integers: Constant, scale: Tensor, zero_point: int) -> Constant:
    """(integer - zero point) * scale: the difference is exact in single precision, and the product is rounded once."""
    shape, weight = [-1] + [1] * (integers.tensor.ndim - 1), integers.tensor.float()
    if input_name(node, zero_point):
        point = _known(node, scope, zero_point, "weight's zero point").tensor
        if point.dtype != integers.tensor.dtype or not _fits(point, integers.tensor):
            raise RefusedError("the zero point of its weight does not fit it")
        weight = weight - point.float().reshape(shape)
    key = f"{integers.key} ({node.op_type} {node.output[0]})"
    return replace(integers, key=key, tensor=weight * scale.reshape(shape))


def _fits(values: Tensor, weight: Tensor) -> bool:
    """Whether values are one number, or one for each slice of a weight's first axis."""
    return values.shape in ((), (1,), weight.shape[:1])


def _later_factor(node: NodeProto, scope: Scope) -> Tensor | None:
    """The only constant that a ConvInteger's result is multiplied by, behind Cast and Add; None if there is none."""
    names, factors = [node.output[0]], list[Tensor | None]()
    for name in names:
        for user in scope.users.get(name, []):
            others = [other for other in user.input if other != name]
            if user.op_type == "Cast" or (user.op_type == "Add" and len(others) == 1):
                names.append(user.output[0])
            elif user.op_type == "Mul":
                factors.append(_constant_factor(others[0], scope) if len(others) == 1 else None)
    return factors[0] if len(factors) == 1 else None


def _constant_factor(name: str, scope: Scope) -> Tensor | None:
    """The constant in a number: itself, or the one constant in a product of two."""
    maker, found = scope.makers.get(name), scope.constant(name)
    if isinstance(found, Constant) or maker is None or maker.op_type != "Mul":
        return found.tensor if isinstance(found, Constant) else None
    constants = [part.tensor for part in map(scope.constant, maker.input) if isinstance(part, Constant)]
    return constants[0] if len(constants) == 1 else None


def _channel_scale(scale: Tensor | None, channels: int) -> Tensor | None:
    """A factor as one number, or one for each channel of a result [batch, channels, *size]; None if it is not that."""
    if scale is None or scale.dtype != torch.float32:
        return None
    shape = list(scale.shape)
    while shape[:1] == [1]:
        shape.pop(0)
    is_channels = len(shape) > 2 and shape == [channels, *[1] * (len(shape) - 1)]
    return scale.reshape(-1) if is_channels or scale.numel() == 1 else None


_PARTS = {
    "Conv": _plain_parts,
    "ConvTranspose": _plain_parts,
    "ConvInteger": _integer_parts,
    "QLinearConv": _quantised_parts,
}
