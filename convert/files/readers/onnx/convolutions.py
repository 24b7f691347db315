"""Convolutions that nodes compute: Conv, ConvTranspose, and QLinearConv, whose weights are dequantised.

QLinearConv is a convolution of the numbers that its integers stand for, with input and result rounded to integers; the
layer is the convolution without the rounding.
"""

from __future__ import annotations

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
    *("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConvTranspose", "CausalConvWithState"),  # of ONNX Runtime
)
"""Operators that are convolutions of some kind, of any domain."""
_PLAIN, _QUANTISED = ("Conv", "ConvTranspose"), "QLinearConv"
_ROUNDING = "the node rounds its input and its result to integers, which the layer does not"


def convolution(node: NodeProto, scope: Scope) -> tuple[DescribedConvolution, list[Constant]]:
    """The convolution that a node computes, and the tensors that it names.

    Args:
        node: A node of one of the ``CONVOLUTIONS``.
        scope: The graph that it lies in.
    """
    try:
        if node.domain not in OWN_DOMAINS:
            raise RefusedError(f"it is an operator of {node.domain[:100]!r}, not of ONNX")
        if node.op_type not in (*_PLAIN, _QUANTISED):
            raise RefusedError(f"{node.op_type} is not a plain convolution")
        weight, bias = _quantised(node, scope) if node.op_type == _QUANTISED else _plain(node, scope)
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
    if type(groups := attributes.get("group", 1)) is not int:
        raise RefusedError("its groups are not a number")
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


def _quantised(node: NodeProto, scope: Scope) -> tuple[Constant, Constant | None]:
    """Weight and bias of a QLinearConv: (integer - zero point) * scale.

    It takes X with scale and zero point, W with both, both of the result, and a bias of int32 in units of the product
    of the first two scales. The difference is exact in single precision, and the product is rounded once.
    """
    integers, scale = _known(node, scope, 3, "weight"), _known(node, scope, 4, "weight's scale").tensor
    weight, point = integers.tensor, _known(node, scope, 5, "weight's zero point").tensor
    if weight.dtype not in (torch.int8, torch.uint8) or not weight.ndim:
        raise RefusedError(f"its weight is of {weight.dtype}, not of integers of 8 bits")
    if scale.dtype != torch.float32 or not _fits(scale, weight):
        raise RefusedError("the scale of its weight is not one number of float32, or one for each channel")
    if point.dtype != weight.dtype or not _fits(point, weight):
        raise RefusedError("the zero point of its weight does not fit it")
    shape = [-1] + [1] * (weight.ndim - 1)
    numbers = (weight.float() - point.float().reshape(shape)) * scale.reshape(shape)
    key = f"{integers.key} ({node.op_type} {node.output[0]})"
    made = replace(integers, key=key, tensor=numbers, note=f"{DEQUANTISED}; {_ROUNDING}")
    if not input_name(node, 8):
        return made, None
    bias, input_scale = _known(node, scope, 8, "bias"), _known(node, scope, 1, "input's scale").tensor
    if input_scale.dtype != torch.float32 or input_scale.numel() != 1:
        raise RefusedError("the scale of its input, which its bias is in, is not one number of float32")
    if bias.tensor.dtype != torch.int32 or not _fits(scale, bias.tensor):
        raise RefusedError("its bias is not one number of int32 for each channel")
    sums = (bias.tensor.double() * input_scale.double().reshape(()) * scale.double()).float()
    return made, replace(bias, key=f"{key} (bias)", tensor=sums)


def _fits(values: Tensor, weight: Tensor) -> bool:
    """Whether values are one number, or one for each slice of a weight's first axis."""
    return values.shape in ((), (1,), weight.shape[:1])
