"""The convolutions that nodes compute: Conv, ConvTranspose, and those over integers, whose weights are dequantised.

QLinearConv is a convolution of what its integers stand for, whose input and result are rounded to integers; the layer
is the convolution without the rounding. ConvInteger has no scale: it is the convolution by its weights less their zero
point, of inputs less theirs; other nodes multiply its result by a scale, which is its weights' where it is found.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..common.geometry import StoredConvolution, describe
from ..common.limits import text_size
from ..common.made import made
from ..common.quantised import DEQUANTISED, ROUNDING, dequantised, fits
from ..common.stored import StoredTensor
from .constants import plain
from .geometry import plain_geometry, transposed_geometry
from .nodes import Node
from .scales import for_channels
from .scopes import Known, Scope

CONVOLUTIONS = (
    *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"),
    *("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConvTranspose", "CausalConvWithState"),  # of ONNX Runtime
)
"""Operators that are convolutions of some kind, of any domain."""
_NO_SCALE = "its weights are the node's integers less their zero point; nodes behind it apply the scale"
_SCALED = f"{DEQUANTISED}; nodes beside it round its input, and may add a bias"

Parts = tuple[Known, Known | None, str | None] | str


def convolution(node: Node, scope: Scope, scale: Known | None) -> tuple[StoredConvolution, list[Known]]:
    """The convolution that a node computes.

    Args:
        node: A node of one of the ``CONVOLUTIONS``.
        scope: What the names of its inputs stand for.
        scale: What its result is multiplied by, if it is of integers and that is known.

    Returns:
        The convolution, and the tensors that it is described by, under the keys that it names.
    """
    if node.domain:
        return StoredConvolution.refused(f"it is an operator of {node.domain[:100]!r}, not of ONNX"), []
    reader = _PARTS.get(node.operator)
    if reader is None:
        return StoredConvolution.refused(f"{node.operator} is not a plain convolution"), []
    parts = reader(node, scope, scale)
    if isinstance(parts, str):
        return StoredConvolution.refused(parts), []
    weight, bias, note = parts
    used = [weight] if bias is None else [weight, bias]
    stored = _described(node, weight, bias, {known.key: known.tensor for known in used})
    notes = [text for text in (weight.note, note) if text is not None]
    return StoredConvolution(*(stored.weight, stored.bias, stored.spec, stored.problem), "; ".join(notes) or None), used


def _described(node: Node, weight: Known, bias: Known | None, tensors: Mapping[str, object]) -> StoredConvolution:
    values = weight.tensor
    kernel = list(values.shape[2:]) if isinstance(values, StoredTensor) else []
    if node.attributes.get("kernel_shape", kernel) != kernel:
        return StoredConvolution.refused("its weight does not have the shape of its kernel")
    geometry = transposed_geometry(node, kernel) if node.operator == "ConvTranspose" else plain_geometry(node, kernel)
    if isinstance(geometry, str):
        return StoredConvolution.refused(geometry)
    return describe(tensors, weight.key, None if bias is None else bias.key, geometry, uneven=True)


def _known(node: Node, scope: Scope, number: int, what: str) -> Known | str:
    """One of a node's inputs, if it is in the file; or why it is not."""
    found = scope.find(node.input(number))
    if isinstance(found, Known):
        return found
    return f"its {what} is {'computed or not in the file' if found is None else found.reason[:200]}"


def _plain_parts(node: Node, scope: Scope, _: Known | None) -> Parts:
    weight = _known(node, scope, 1, "weight")
    if isinstance(weight, str) or not node.input(2):
        return weight if isinstance(weight, str) else (weight, None, None)
    bias = _known(node, scope, 2, "bias")
    return bias if isinstance(bias, str) else (weight, bias, None)


def _integer_parts(node: Node, scope: Scope, scale: Known | None) -> Parts:
    """X, W, the zero points of X and of W."""
    weight = _known(node, scope, 1, "weight")
    if isinstance(weight, str):
        return weight
    shape = weight.tensor.shape if isinstance(weight.tensor, StoredTensor) else ()
    found, zero_point = for_channels(scale, shape[0]) if shape else None, _values(node, scope, 3)
    values, note = torch.ones(()), _NO_SCALE
    if found is not None and found.dtype == torch.float32:
        values, note = found.read(), _SCALED
    return _dequantised(node, weight, values, zero_point, given=bool(node.input(3)), note=note)


def _quantised_parts(node: Node, scope: Scope, _: Known | None) -> Parts:
    """X with scale and zero point, W with both, those of the result, and a bias of int32."""
    weight, bias = _known(node, scope, 3, "weight"), None
    scale, input_scale = _values(node, scope, 4), _values(node, scope, 1)
    if isinstance(weight, str):
        return weight
    if scale is None or scale.dtype != torch.float32:
        return "the scale of its weight is computed"
    parts = _dequantised(
        node, weight, scale, _values(node, scope, 5), given=bool(node.input(5)), note=f"{DEQUANTISED}; {ROUNDING}"
    )
    if isinstance(parts, str) or not node.input(8):
        return parts
    given = _known(node, scope, 8, "bias")
    if isinstance(given, str) or not isinstance(given.tensor, StoredTensor) or given.tensor.flaw() is not None:
        return str(given) if isinstance(given, str) else "its bias is not a plain tensor"
    if input_scale is None or input_scale.dtype != torch.float32 or input_scale.numel() != 1:
        return "the scale of its input, which its bias is in, is computed"
    if given.tensor.dtype != torch.int32 or not fits(tuple(scale.shape), given.tensor.shape, 0):
        return "its bias is not of int32, or not one number a channel"
    key = f"{parts[0].key} (bias)"
    given.tensor.storage.source.budget.spend(memory=text_size(key))
    bias = given._replace(key=key, tensor=_bias(given.tensor, input_scale, scale))
    return parts[0], bias, parts[2]


def _dequantised(
    node: Node, weight: Known, scale: Tensor, zero_point: Tensor | None, *, given: bool, note: str
) -> Parts:
    """The weight that integers stand for, one scale and zero point for all or for each output channel."""
    integers = weight.tensor
    if not isinstance(integers, StoredTensor) or integers.flaw() is not None:
        return "its weight is not a plain tensor"
    if integers.dtype not in (torch.int8, torch.uint8):
        return f"its weight is of {integers.dtype}, not of integers of 8 bits"
    if given and (
        zero_point is None or zero_point.dtype != integers.dtype or not fits(tuple(zero_point.shape), integers.shape, 0)
    ):
        return "the zero point of its weight is computed, or does not fit it"
    if not fits(tuple(scale.shape), integers.shape, 0):
        return "the scale of its weight does not fit it"
    key = f"{weight.key} ({node.operator} {node.outputs[0] if node.outputs else node.name})"
    integers.storage.source.budget.spend(memory=text_size(key))
    numbers = dequantised(integers, scale, zero_point)
    return weight._replace(key=key, tensor=numbers), None, note


def _bias(integers: StoredTensor, input_scale: Tensor, scale: Tensor) -> StoredTensor:
    """A bias in the unit of the sums, input scale times weight scale: in double precision, then rounded once."""

    def make() -> Tensor:
        return (integers.read().double() * input_scale.double().reshape(()) * scale.double()).float()

    return made(integers.storage.source, torch.float32, integers.shape, make, spare=24 * integers.numel)


def _values(node: Node, scope: Scope, number: int) -> Tensor | None:
    """The numbers of one of a node's inputs, if they are in the file."""
    found = scope.find(node.input(number))
    return plain(found) if isinstance(found, Known) else None


_PARTS = {
    "Conv": _plain_parts,
    "ConvTranspose": _plain_parts,
    "ConvInteger": _integer_parts,
    "QLinearConv": _quantised_parts,
}
"""What reads the weight and the bias of a node, and what the user should know of them, or why there are none."""
