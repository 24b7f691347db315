"""Convolutions that nodes compute: Conv and ConvTranspose.

Of the geometry, numbers are given for each axis; pads are those before every axis, then those after every axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import NodeProto, helper
from torch import Tensor

from ..errors import GeometryError
from ..spec import ConvSpec, DescribedConvolution
from ..subclasses.padded import has_class
from .constants import OWN_DOMAINS, Constant, Scope

CONVOLUTIONS = (
    *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"),
    *("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConvTranspose", "CausalConvWithState"),  # ONNX Runtime's own
)
"""Operators that are convolutions of some kind, of any domain."""
_PLAIN = ("Conv", "ConvTranspose")
_SAME = ("SAME_UPPER", "SAME_LOWER")
_OVER_INTEGERS = ("ConvInteger", "QLinearConv", "QLinearConvTranspose")

Attributes = Mapping[str, Any]


class RefusedError(Exception):
    """A node's convolution cannot be described; the message says why."""


def described_convolution(node: NodeProto, scope: Scope) -> tuple[DescribedConvolution, list[Constant]]:
    """The convolution that a node of one of the ``CONVOLUTIONS`` computes, and the tensors that it names."""
    try:
        if node.domain not in OWN_DOMAINS:
            raise RefusedError(f"it is an operator of {node.domain[:100]!r}, not of ONNX")
        if node.op_type in _OVER_INTEGERS:
            raise RefusedError(
                f"{node.op_type} computes with integers; write the file with DequantizeLinear nodes, or in float32"
            )
        if node.op_type not in _PLAIN:
            raise RefusedError(f"{node.op_type} is not a plain convolution")
        bias = _known(node, scope, 2, "bias") if input_name(node, 2) else None
        weight = _known(node, scope, 1, "weight")
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


def plain_geometry(attributes: Attributes, kernel: Sequence[int]) -> dict[str, Any]:
    """Geometry of a Conv with this kernel size, as ``ConvSpec.from_json`` takes it.

    PyTorch's "same" puts an odd pixel at the far end, as SAME_UPPER does; where the stride is not 1, the padding of
    both depends on the input's size.
    """
    geometry = _common(attributes, kernel)
    unit_stride, automatic = set(geometry["stride"]) == {1}, attributes.get("auto_pad", "NOTSET")
    spans = [step * (taps - 1) for step, taps in zip(geometry["dilation"], kernel, strict=True)]
    if automatic in _SAME:
        odd = any(span % 2 for span in spans)
        is_same = unit_stride and not (odd and automatic == "SAME_LOWER")
        return geometry | {"padding": "same" if is_same else automatic.lower()}
    before, after = _pads(attributes, kernel)
    if before == after:
        return geometry | {"padding": before}
    pairs = [list(pair) for pair in zip(before, after, strict=True)]
    is_same = unit_stride and pairs == [[span // 2, span - span // 2] for span in spans]
    return geometry | {"padding": "same" if is_same else pairs}


def transposed_geometry(attributes: Attributes, kernel: Sequence[int], size: Sequence[int] | None) -> dict[str, Any]:
    """Geometry of a ConvTranspose, likewise, with the size of its input, or None if the file leaves that open.

    A pad is an output that is cropped. An axis whose end is cropped less than its beginning keeps outputs there, which
    PyTorch calls output padding; one whose end is cropped more has a pair of pads (``padded.py``).
    """
    geometry = _common(attributes, kernel)
    added = attributes.get("output_padding", [0] * len(kernel))
    before, after = _cropped(attributes, kernel, size, geometry, added)
    kept = [more + first - last for more, first, last in zip(added, before, after, strict=True)]
    limits = map(max, geometry["stride"], geometry["dilation"])
    if all(0 <= number < limit for number, limit in zip(kept, limits, strict=True)):
        return geometry | {"padding": before, "output_padding": kept, "transposed": True}
    longer = [more + max(-last, 0) for more, last in zip(added, after, strict=True)]
    pairs = [[first, max(last, 0)] for first, last in zip(before, after, strict=True)]
    return geometry | {"padding": pairs, "output_padding": longer, "transposed": True}


def _cropped(
    attributes: Attributes,
    kernel: Sequence[int],
    size: Sequence[int] | None,
    geometry: Mapping[str, Any],
    added: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Outputs of a ConvTranspose that are cropped before and after each axis; negative ones are added.

    Of n pixels, stride s, taps that span d (K - 1) + 1 pixels and a added outputs there are s (n - 1) + span + a
    outputs; what there are more than ``output_shape`` (or than s n, with ``auto_pad``) is cropped, an odd one after
    the axis with SAME_UPPER, else before it. So do the standard, its reference and ONNX Runtime.
    """
    automatic, wanted = attributes.get("auto_pad", "NOTSET"), attributes.get("output_shape")
    spans = [step * (taps - 1) + 1 for step, taps in zip(geometry["dilation"], kernel, strict=True)]
    if wanted is not None:
        if size is None:
            raise RefusedError("its padding depends on the input's size (output_shape), which the file leaves open")
        lengths = [step * (n - 1) for step, n in zip(geometry["stride"], size, strict=True)]
        along = zip(lengths, spans, added, wanted[-len(kernel) :], strict=True)  # without batch and channels
        totals = [length + span + more - end for length, span, more, end in along]
    elif automatic in _SAME:
        totals = [span + more - step for span, more, step in zip(spans, added, geometry["stride"], strict=True)]
        if min(totals) < 0:
            raise RefusedError("its stride is longer than its kernel, where implementations of auto_pad disagree")
    else:
        return _pads(attributes, kernel)
    pads = [(total // 2, total - total // 2) if total > 0 else (0, total) for total in totals]
    if automatic != "SAME_UPPER":
        pads = [(after, before) if after > 0 else (before, after) for before, after in pads]
    return [before for before, _ in pads], [after for _, after in pads]


def _common(attributes: Attributes, kernel: Sequence[int]) -> dict[str, Any]:
    stride, dilation = (attributes.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    return {"stride": stride, "dilation": dilation, "groups": attributes.get("group", 1)}


def _pads(attributes: Attributes, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    axes = len(kernel)
    if attributes.get("auto_pad", "NOTSET") == "VALID":
        return [0] * axes, [0] * axes
    pads = attributes.get("pads", [0] * (2 * axes))
    return pads[:axes], pads[axes:]


def _known(node: NodeProto, scope: Scope, number: int, role: str) -> Constant:
    found = scope.constant(input_name(node, number))
    if isinstance(found, str):
        raise RefusedError(f"its {role} is {found}")
    return found
