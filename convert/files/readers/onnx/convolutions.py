"""Convolutions that nodes compute: Conv, ConvTranspose, and those over integers, whose weights are dequantised.

QLinearConv is a convolution of the numbers that its integers stand for, with input and result rounded to integers; the
layer is the convolution without the rounding. ConvInteger convolves its input less a zero point by its weight less a
zero point, and later nodes apply the scale; the layer is what the node computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from onnx import NodeProto, helper
from torch import Tensor

from ....errors import GeometryError
from ....padded import has_class
from ....spec import ConvSpec
from ..described import DescribedConvolution
from .geometry import RefusedError, plain_geometry, transposed_geometry
from .load import OWN_DOMAINS
from .scopes import DEQUANTISED, Constant, Scope

CONVOLUTIONS = (
    *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"),
    *("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConvTranspose", "CausalConvWithState"),  # ONNX Runtime's own
)
"""Operators that are convolutions of some kind, of any domain."""
_ROUNDING = "the node rounds its input and its result to integers, which the layer does not"
_NO_SCALE = "its weights are the node's integers less their zero point; later nodes apply the scale"


def convolution(node: NodeProto, scope: Scope) -> tuple[DescribedConvolution, list[Constant]]:
    """The convolution that a node of one of the ``CONVOLUTIONS`` computes, and the tensors that it names."""
    try:
        if node.domain not in OWN_DOMAINS:
            raise RefusedError(f"it is an operator of {node.domain[:100]!r}, not of ONNX")
        if node.op_type not in _PARTS:
            raise RefusedError(f"{node.op_type} is not a plain convolution")
        weight, bias = _PARTS[node.op_type](node, scope)
        spec = _spec(node, weight.tensor, None if bias is None else bias.tensor, scope)
    except RefusedError as reason:
        return DescribedConvolution.refused(str(reason)), []
    described = DescribedConvolution(weight.key, None if bias is None else bias.key, spec, note=weight.note)
    return described, [weight, *([] if bias is None else [bias])]


def input_name(node: NodeProto, number: int) -> str:
    """Name of a node's input; "" if it is left out."""
    return str(node.input[number]) if number < len(node.input) else ""


def _spec(node: NodeProto, weight: Tensor, bias: Tensor | None, scope: Scope) -> ConvSpec:
    """Geometry of a node: its channels and kernel are the weight's, [out_channels, in_channels / groups, *kernel_size].

    The weight of a transposed convolution is [in_channels, out_channels / groups, *kernel_size].
    """
    if not 1 <= weight.ndim - 2 <= 3:
        raise RefusedError(f"its weight has {weight.ndim} dimensions, which no convolution has")
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    first, second, *kernel = weight.shape
    if attributes.get("kernel_shape", kernel) != kernel:
        raise RefusedError("its weight does not have the shape of its kernel")
    groups = attributes.get("group", 1)
    if node.op_type == "ConvTranspose":
        geometry = transposed_geometry(attributes, kernel, scope.size(node.input[0]))
        channels = {"in_channels": first, "out_channels": second * groups}
    else:
        geometry = plain_geometry(attributes, kernel)
        channels = {"in_channels": second * groups, "out_channels": first}
    try:
        spec = ConvSpec.from_json(geometry | channels | {"kernel_size": kernel, "bias": bias is not None})
    except GeometryError as error:
        raise RefusedError(str(error)) from error
    if spec.is_uneven and not has_class(spec):
        raise RefusedError("its padding is one that no convolution of PyTorch has")
    if bias is not None and bias.shape != (spec.out_channels,):
        raise RefusedError("its bias is not one number a channel")
    return spec


def _known(node: NodeProto, scope: Scope, number: int, role: str) -> Constant:
    """One of a node's inputs."""
    found = scope.constant(input_name(node, number))
    if isinstance(found, str):
        raise RefusedError(f"its {role} is {found}")
    return found


def _plain(node: NodeProto, scope: Scope) -> tuple[Constant, Constant | None]:
    """Weight and bias of a node that takes X, W, and perhaps a bias."""
    bias = _known(node, scope, 2, "bias") if input_name(node, 2) else None
    return _known(node, scope, 1, "weight"), bias


def _integers(node: NodeProto, scope: Scope) -> tuple[Constant, None]:
    """The weight of a ConvInteger, which takes X, W, and the zero points of both."""
    return replace(_dequantised(node, scope, 1, torch.ones(()), 3), note=_NO_SCALE), None


def _quantised(node: NodeProto, scope: Scope) -> tuple[Constant, Constant | None]:
    """Weight and bias of a QLinearConv.

    It takes X with scale and zero point, W with both, both of the result, and a bias of int32 in units of the product
    of the first two scales.
    """
    scale = _known(node, scope, 4, "weight's scale").tensor
    weight = replace(_dequantised(node, scope, 3, scale, 5), note=f"{DEQUANTISED}; {_ROUNDING}")
    if not input_name(node, 8):
        return weight, None
    bias, input_scale = _known(node, scope, 8, "bias"), _known(node, scope, 1, "input's scale").tensor
    sums = (bias.tensor.double() * input_scale.double().reshape(()) * scale.double()).float()
    return weight, replace(bias, key=f"{weight.key} (bias)", tensor=sums)


def _dequantised(node: NodeProto, scope: Scope, number: int, scale: Tensor, zero_point: int) -> Constant:
    """(integer - zero point) * scale: the difference is exact in single precision, and the product is rounded once."""
    found = _known(node, scope, number, "weight")
    shape, weight = [-1] + [1] * (found.tensor.ndim - 1), found.tensor.float()
    if input_name(node, zero_point):
        weight = weight - _known(node, scope, zero_point, "weight's zero point").tensor.float().reshape(shape)
    return replace(found, key=f"{found.key} ({node.op_type} {node.output[0]})", tensor=weight * scale.reshape(shape))


_PARTS: dict[str, Callable[[NodeProto, Scope], tuple[Constant, Constant | None]]] = {
    "Conv": _plain,
    "ConvTranspose": _plain,
    "ConvInteger": _integers,
    "QLinearConv": _quantised,
}
