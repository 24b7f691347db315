"""Operators of ONNX as functions of torch: what a node computes, of its inputs and attributes.

A row takes the node (``Node``) and gives a tensor or several. What torch does not do alike raises an
``UnsupportedError``. Rows hold from opset 11 on; where the standard changed since, a row asks for the version. Shapes
are tensors of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .grid_rows import DTYPES, GRID_ROWS, UnsupportedError


@dataclass(frozen=True)
class Node:
    """A node with its inputs.

    Attributes:
        op: The operator.
        inputs: Tensors; None where one is left out.
        attributes: By name.
        opset: The version of the standard.
        outputs: Number of its results.
    """

    op: str
    inputs: Sequence[Tensor | None]
    attributes: dict[str, Any]
    opset: int
    outputs: int = 1

    def __getitem__(self, place: int) -> Tensor:
        found = self.get(place)
        if found is None:
            raise UnsupportedError(f"without its input {place}")
        return found

    def get(self, place: int) -> Tensor | None:
        """An input, or None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def ints(self, name: str, place: int, usual: Sequence[int] | None = None) -> list[int] | None:
        """Integers that are an attribute in older versions, and an input in newer ones."""
        given = self.get(place)
        if given is not None:
            return [int(each) for each in given.reshape(-1).tolist()]
        found = self.attributes.get(name, usual)
        return None if found is None else [int(each) for each in found]

    def attribute(self, name: str, usual: Any) -> Any:
        """An attribute, or what the standard has where it is left out."""
        return self.attributes.get(name, usual)


Row = Callable[[Node], Any]


def _unary(call: Callable[[Tensor], Tensor]) -> Row:
    return lambda node: call(node[0])


def _binary(call: Callable[[Tensor, Tensor], Tensor]) -> Row:
    return lambda node: call(node[0], node[1])


def _folded(call: Callable[[Tensor, Tensor], Tensor]) -> Row:
    def row(node: Node) -> Tensor:
        found = node[0]
        for place in range(1, len(node.inputs)):
            found = call(found, node[place])
        return found

    return row


def _div(node: Node) -> Tensor:
    is_real = node[0].is_floating_point()
    return node[0] / node[1] if is_real else torch.div(node[0], node[1], rounding_mode="trunc")


def _clip(node: Node) -> Tensor:
    low, high = (node.get(place) for place in (1, 2))
    if low is None and high is None:
        return node[0].clone()
    limits = [None if one is None else one.item() for one in (low, high)]
    return torch.clamp(node[0], *limits)


def _cast(node: Node) -> Tensor:
    dtype = DTYPES.get(node.attribute("to", 0))
    if dtype is None:
        raise UnsupportedError(f"to the type {node.attribute('to', 0)}")
    return node[0].to(dtype)


def _softmax(call: Callable[..., Tensor]) -> Row:
    def row(node: Node) -> Tensor:
        x = node[0]
        if node.opset >= 13:
            return call(x, dim=node.attribute("axis", -1))
        axis = node.attribute("axis", 1) % max(x.ndim, 1)
        return call(x, dim=-1) if axis == x.ndim - 1 else call(x.flatten(axis), dim=-1).view(x.shape)

    return row


def _gemm(node: Node) -> Tensor:
    a = node[0].mT if node.attribute("transA", 0) else node[0]
    b = node[1] if node.attribute("transB", 0) else node[1].mT
    alpha, beta, bias = node.attribute("alpha", 1.0), node.attribute("beta", 1.0), node.get(2)
    if alpha == 1.0 and (bias is None or (beta == 1.0 and bias.ndim == 1)):
        return _activated(node, F.linear(a, b, bias))
    found = F.linear(a, b) * alpha
    return _activated(node, found if bias is None else found + bias * beta)


def _fused_matmul(node: Node) -> Tensor:
    a, b = node[0], node[1]
    a, b = (one.mT if node.attribute(name, 0) else one for one, name in ((a, "transA"), (b, "transB")))
    alpha = node.attribute("alpha", 1.0)
    return torch.matmul(a, b) if alpha == 1.0 else torch.matmul(a, b) * alpha


def _activated(node: Node, found: Tensor) -> Tensor:
    """The activation that ONNX Runtime fuses into a product."""
    name, alpha = node.attribute("activation", ""), node.attribute("activation_alpha", 0.01)
    given = node.attribute("activation_params", [alpha])  # of convolutions; products have the other
    if name == "LeakyRelu":
        return F.leaky_relu(found, given[0])
    if name == "Clip":
        return found.clamp(*given)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "": lambda x: x,
        "Relu": F.relu,
        "Tanh": torch.tanh,
        "Sigmoid": torch.sigmoid,
    }
    if name not in calls:
        raise UnsupportedError(f"with the activation {name}")
    return calls[name](found)


def _reduced(call: Callable[..., Tensor]) -> Row:
    def row(node: Node) -> Tensor:
        axes = node.ints("axes", 1)
        if axes is None or not axes:
            if axes is not None and node.attribute("noop_with_empty_axes", 0):
                return node[0]
            axes = list(range(node[0].ndim))
        return call(node[0], axes, bool(node.attribute("keepdims", 1)))

    return row


def _prod(x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    for axis in sorted((each % x.ndim for each in axes), reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def _chosen(call: Callable[..., Tensor]) -> Row:
    def row(node: Node) -> Tensor:
        if node.attribute("select_last_index", 0):
            raise UnsupportedError("with select_last_index")
        return call(node[0], node.attribute("axis", 0), bool(node.attribute("keepdims", 1)))

    return row


def _top(node: Node) -> tuple[Tensor, Tensor]:
    largest, is_sorted = (bool(node.attribute(name, 1)) for name in ("largest", "sorted"))
    found: tuple[Tensor, Tensor] = tuple(
        torch.topk(node[0], int(node[1]), node.attribute("axis", -1), largest, is_sorted)
    )  # type: ignore[assignment]
    return found


def _layer_norm(node: Node) -> Tensor:
    axis = node.attribute("axis", -1) % node[0].ndim
    return F.layer_norm(node[0], node[0].shape[axis:], node[1], node.get(2), node.attribute("epsilon", 1e-5))


def _rms_norm(node: Node) -> Tensor:
    axis = node.attribute("axis", -1) % node[0].ndim
    return F.rms_norm(node[0], node[0].shape[axis:], node[1], node.attribute("epsilon", 1e-5))


def _skip_norm(node: Node) -> tuple[Tensor | None, ...]:
    total, eps = node[0] + node[1], node.attribute("epsilon", 1e-12)
    is_simple = node.op.startswith("SkipSimplified")
    bias = node.get(3 if is_simple else 4)
    total = total if bias is None else total + bias
    norm = (
        F.rms_norm(total, total.shape[-1:], node[2], eps)
        if is_simple
        else F.layer_norm(total, total.shape[-1:], node[2], node.get(3), eps)
    )
    return norm, None, None, total


def _group_norm(node: Node) -> Tensor:
    groups = int(node.attributes["num_groups"])
    if node.opset < 21:  # one factor a group
        shape = (1, -1, *[1] * (node[0].ndim - 2))
        x = F.group_norm(node[0], groups, eps=node.attribute("epsilon", 1e-5))
        each = x.shape[1] // groups
        return x * node[1].repeat_interleave(each).view(shape) + node[2].repeat_interleave(each).view(shape)
    return F.group_norm(node[0], groups, node[1], node[2], node.attribute("epsilon", 1e-5))


def _batch_norm(node: Node) -> Tensor:
    if node.attribute("training_mode", 0):
        raise UnsupportedError("in training mode")
    x, scale, bias, mean, var = (node[place] for place in range(5))
    return F.batch_norm(x, mean, var, scale, bias, eps=node.attribute("epsilon", 1e-5))


def _instance_norm(node: Node) -> Tensor:
    return F.instance_norm(node[0], weight=node[1], bias=node[2], eps=node.attribute("epsilon", 1e-5))


def _lrn(node: Node) -> Tensor:
    alpha, beta, bias = (node.attribute(*each) for each in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return F.local_response_norm(node[0], int(node.attributes["size"]), alpha, beta, bias)


def _gelu(node: Node) -> Tensor:
    return F.gelu(node[0], approximate=node.attribute("approximate", "none"))


def _bias_gelu(node: Node) -> Tensor:
    return F.gelu(node[0] + node[1])


def _fast_gelu(node: Node) -> Tensor:
    bias = node.get(1)
    return F.gelu(node[0] if bias is None else node[0] + bias, approximate="tanh")


def _quick_gelu(node: Node) -> Tensor:
    return node[0] * torch.sigmoid(node[0] * node.attribute("alpha", 1.702))


def _hard_sigmoid(node: Node) -> Tensor:
    x: Tensor = node[0] * node.attribute("alpha", 0.2) + node.attribute("beta", 0.5)
    return x.clamp(0, 1)


def _attention(node: Node) -> Tensor:
    """ONNX Runtime's fused attention: one product for q, k and v, or three inputs of their own."""
    heads = int(node.attributes["num_heads"])
    if node.op == "Attention":
        if any(node.get(place) is not None for place in range(3, len(node.inputs))) or node.attribute(
            "unidirectional", 0
        ):
            raise UnsupportedError("with a mask or a past")
        q, k, v = F.linear(node[0], node[1].mT, node.get(2)).chunk(3, -1)
    else:
        if any(node.get(place) is not None for place in range(4, len(node.inputs))):
            raise UnsupportedError("with a mask or a past")
        q, k, v = node[0], node[1], node[2]
        bias = node.get(3)
        if bias is not None:
            q, k, v = (one + each for one, each in zip((q, k, v), bias.chunk(3), strict=True))
    apart = [one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (q, k, v)]
    scale = node.attribute("scale", 0.0) or None
    return F.scaled_dot_product_attention(apart[0], apart[1], apart[2], scale=scale).transpose(1, 2).flatten(2)


ROWS: dict[str, Row] = {
    **GRID_ROWS,
    **{
        name: _unary(getattr(torch, name.lower()))
        for name in ("Abs", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Neg")
    },
    **{
        name: _unary(getattr(torch, name.lower()))
        for name in ("Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh")
    },
    **{
        name: _unary(getattr(torch, name.lower()))
        for name in ("Sqrt", "Tan", "Tanh", "Acos", "Asin", "Atan", "IsNaN", "IsInf")
    },
    "Not": _unary(torch.logical_not),
    "Softplus": _unary(F.softplus),
    "Softsign": _unary(F.softsign),
    "Mish": _unary(F.mish),
    "Identity": _unary(lambda x: x),
    "Dropout": _unary(lambda x: x),
    "HardSwish": _unary(F.hardswish),
    "Swish": _unary(F.silu),
    "Selu": _unary(F.selu),
    "Add": _binary(torch.add),
    "Sub": _binary(torch.sub),
    "Mul": _binary(torch.mul),
    "Pow": _binary(torch.pow),
    "And": _binary(torch.logical_and),
    "Or": _binary(torch.logical_or),
    "Xor": _binary(torch.logical_xor),
    "Equal": _binary(torch.eq),
    "Greater": _binary(torch.gt),
    "Less": _binary(torch.lt),
    "GreaterOrEqual": _binary(torch.ge),
    "LessOrEqual": _binary(torch.le),
    "PRelu": _binary(lambda x, s: torch.where(x >= 0, x, s * x)),
    "Sum": _folded(torch.add),
    "Max": _folded(torch.maximum),
    "Min": _folded(torch.minimum),
    "Div": _div,
    "Mod": lambda node: (
        torch.fmod(node[0], node[1]) if node.attribute("fmod", 0) else torch.remainder(node[0], node[1])
    ),
    "Mean": lambda node: _folded(torch.add)(node) / len(node.inputs),
    "Where": lambda node: torch.where(node[0], node[1], node[2]),
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": lambda node: node[0].to(node[1].dtype),
    "Elu": lambda node: F.elu(node[0], node.attribute("alpha", 1.0)),
    "Celu": lambda node: F.celu(node[0], node.attribute("alpha", 1.0)),
    "LeakyRelu": lambda node: F.leaky_relu(node[0], node.attribute("alpha", 0.01)),
    "HardSigmoid": _hard_sigmoid,
    "Gelu": _gelu,
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "Softmax": _softmax(F.softmax),
    "LogSoftmax": _softmax(F.log_softmax),
    "MatMul": _binary(torch.matmul),
    "FusedMatMul": _fused_matmul,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "Einsum": lambda node: torch.einsum(node.attributes["equation"], *node.inputs),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMin": _reduced(torch.amin),
    "ReduceProd": _reduced(_prod),
    "ReduceL1": _reduced(lambda x, axes, keep: x.abs().sum(axes, keep)),
    "ReduceL2": _reduced(lambda x, axes, keep: x.square().sum(axes, keep).sqrt()),
    "ReduceSumSquare": _reduced(lambda x, axes, keep: x.square().sum(axes, keep)),
    "ReduceLogSumExp": _reduced(torch.logsumexp),
    "ArgMax": _chosen(torch.argmax),
    "ArgMin": _chosen(torch.argmin),
    "TopK": _top,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "GroupNormalization": _group_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "Attention": _attention,
    "MultiHeadAttention": _attention,
}


def computed(node: Node) -> tuple[Any, ...]:
    """The results of a node.

    Raises:
        UnsupportedError: It has no row, or what the row cannot do.
    """
    row = ROWS.get(node.op)
    if row is None:
        raise UnsupportedError("which has no row")
    if node.op in ("Conv", "FusedConv"):
        found: Any = _activated(node, row(node))
    else:
        found = row(node)
    return tuple(found) if isinstance(found, list | tuple) else (found,)
