"""Brings an older model to the version of the standard that the forms need: what nodes compute stays as it is.

From opset 6 to 11 most operators only gain types and options. Those that change have a rule each:

    Add, Mul, PRelu, ... of 6     a second operand that begins at ``axis`` gets axes of one behind it
    BatchNormalization, Dropout   must be marked as in use, not in training (``is_test``); ``spatial`` can only be 1
    Slice, TopK, Clip, Pad        attributes become inputs
    Upsample, Resize              a pixel q reads q / scale ("asymmetric"), which later versions do not by default
    Scatter                       becomes ScatterElements
    RNN, GRU, LSTM of 6, Scan     refused

Nearest pixels of Upsample and of Resize 10 are rounded down where an axis grows and up where it shrinks, as ONNX
Runtime does; the standard leaves it open. A Resize that does both is refused, as two in its place are not the same:
one that leaves the size as it is copies, in ONNX Runtime, whatever its factor. Where factors are computed, two are
written: right if all axes grow, or all shrink, or none grows by less than one pixel beside another that shrinks.

onnx's own version converter brings models to opset 6 only. Beyond, it leaves ``asymmetric`` out, takes PRelu's channels
for columns and every number for single precision, and drops Scan's batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, shape_inference, version_converter

from ..errors import CheckpointError, first_line
from .constants import OWN_DOMAINS, Constant, Scope, scopes_of
from .grid import Nodes

OPSET = 11
"""The first version of the standard that has the operators of the forms."""
_LEAST = 6  # the first version that the rules are for
_BROADCASTING = 7  # the first one that broadcasts as NumPy does, and has no ``is_test``
_TRAINS = "it is in training (is_test=0)"


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's own operators in a model."""
    return max((one.version for one in model.opset_import if one.domain in OWN_DOMAINS), default=1)


def lifted(model: ModelProto, path: Path) -> ModelProto:
    """A model in opset 11 or later; older ones are changed in place, or copied.

    Args:
        model: As ``load_model`` gives it.
        path: Its file, for errors.

    Raises:
        CheckpointError: An operator of it, which is named, has no counterpart that computes the same.
    """
    before = opset_of(model)
    if before >= OPSET:
        return model
    if before < _LEAST:
        try:
            model = version_converter.convert_version(model, _LEAST)
        except Exception as error:  # whatever onnx's own code raises
            raise CheckpointError(
                f"onnx cannot bring {path} from opset {before} to {_LEAST}: {first_line(error)}"
            ) from error
    kinds = _Kinds(model)
    problems: list[str] = []
    for scope in scopes_of(model):
        nodes = [each for node in scope.graph.node for each in _rewritten(node, scope, before, kinds, problems)]
        del scope.graph.node[:]
        scope.graph.node.extend(nodes)
    if problems:
        raise CheckpointError(f"{path} cannot be brought from opset {before} to {OPSET}: {'; '.join(problems)}")
    for one in model.opset_import:
        if one.domain in OWN_DOMAINS:
            one.version = OPSET
    return model


class _Kinds:
    """Types of a model's tensors, by name, which onnx infers."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model

    @cached_property
    def _found(self) -> dict[str, int]:
        try:
            model = shape_inference.infer_shapes(self._model)
        except Exception:  # whatever onnx raises for a model that it does not understand
            model = self._model
        found: dict[str, int] = {}
        for scope in scopes_of(model):
            graph = scope.graph
            found |= {tensor.name: tensor.data_type for tensor in graph.initializer}
            found |= {port.name: port.type.tensor_type.elem_type for port in (*graph.input, *graph.value_info)}
        return found

    def dtype(self, name: str) -> Any:
        """NumPy's type of a tensor; single precision where it is not known."""
        return helper.tensor_dtype_to_np_dtype(self._found.get(name) or TensorProto.FLOAT)


class _Old(NamedTuple):
    node: NodeProto
    said: dict[str, Any]
    scope: Scope
    nodes: Nodes
    opset: int
    kinds: _Kinds

    def numbers(self, name: str) -> str:
        """An attribute as a constant of integers, or "" where it is missing."""
        return self.nodes.constant(self.said[name], name=name) if name in self.said else ""

    def replaced(self, *inputs: str, operator: str = "", without: tuple[str, ...] = ()) -> None:
        """Adds the node with other inputs, and without some attributes."""
        made = NodeProto()
        made.CopyFrom(self.node)
        made.op_type = operator or self.node.op_type
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        del made.input[:], made.attribute[:]
        made.input.extend(inputs)
        made.attribute.extend(one for one in self.node.attribute if one.name not in without)
        self.nodes.written.append(made)


def _rewritten(node: NodeProto, scope: Scope, opset: int, kinds: _Kinds, problems: list[str]) -> list[NodeProto]:
    """The nodes that compute in opset 11 what a node of an earlier one does; problems become more."""
    since, rule = _RULES.get(node.op_type, (0, None))
    if rule is None or node.domain not in OWN_DOMAINS or opset >= since:
        return [node]
    said = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    old = _Old(node, said, scope, Nodes(next(filter(None, node.output), node.name)), opset, kinds)
    reason = rule(old)
    if reason is not None:
        problems.append(f"{node.op_type}{f' ({node.name})' if node.name else ''}: {reason}")
    return old.nodes.written


def _broadcast(old: _Old) -> None:
    x, other = old.node.input
    aligned = _aligned(old, other, old.said["axis"]) if old.said.get("broadcast") and "axis" in old.said else other
    old.replaced(x, aligned, without=("broadcast", "axis", "consumed_inputs"))


def _aligned(old: _Old, other: str, axis: int) -> str:
    """An operand whose axes begin at one of the first operand's, with as many axes of one behind as there are left."""
    add, shape = old.nodes.add, old.nodes.add("Shape", other)
    ranks = (add("Shape", each) for each in (add("Shape", old.node.input[0]), shape))
    left = add("Sub", add("Sub", *ranks), old.nodes.constant([axis]))
    ones = add("ConstantOfShape", left, value=helper.make_tensor("one", TensorProto.INT64, [1], [1]))
    return add("Reshape", other, add("Concat", shape, ones, axis=0), name="aligned")


def _p_relu(old: _Old) -> None:
    """Up to opset 6, a slope for each channel is a vector."""
    x, slope = old.node.input
    known = _known(old.scope, slope)
    old.replaced(x, slope if known is not None and known.ndim != 1 else _aligned(old, slope, 1))


def _without_broadcast(old: _Old) -> None:
    old.replaced(*old.node.input, without=("broadcast",))


def _used(old: _Old) -> str | None:
    old.replaced(*old.node.input, without=("is_test", "consumed_inputs"))
    return None if old.said.get("is_test") else _TRAINS


def _recurrent(old: _Old) -> str:
    return "that of opset 6 has no counterpart"


def _slice(old: _Old) -> None:
    parts = (old.numbers(name) for name in ("starts", "ends", "axes"))
    old.replaced(old.node.input[0], *parts, without=("starts", "ends", "axes"))


def _top_k(old: _Old) -> None:
    old.replaced(old.node.input[0], old.nodes.constant([old.said["k"]], name="k"), without=("k",))


def _clip(old: _Old) -> None:
    dtype = old.kinds.dtype(old.node.input[0])
    ends = [old.nodes.constant(old.said[end], dtype, name=end) if end in old.said else "" for end in ("min", "max")]
    old.replaced(old.node.input[0], *ends, without=("min", "max"))


def _pad(old: _Old) -> None:
    value = old.nodes.constant(old.said.get("value", 0.0), old.kinds.dtype(old.node.input[0]), name="value")
    is_constant = old.said.get("mode", b"constant") == b"constant"
    old.replaced(old.node.input[0], old.numbers("pads"), value if is_constant else "", without=("pads", "value"))


def _normalised(old: _Old) -> str | None:
    old.replaced(*old.node.input, without=("spatial", "is_test", "consumed_inputs"))
    if old.opset < _BROADCASTING and not old.said.get("is_test"):
        return _TRAINS
    return None if old.said.get("spatial", 1) == 1 else "spatial=0 has no counterpart"


def _scattered(old: _Old) -> None:
    old.replaced(*old.node.input, operator="ScatterElements")


def _scan(old: _Old) -> str:
    return "its batch has no counterpart"


def _resize(old: _Old) -> str | None:
    """Upsample, and Resize of opset 10: one Resize; two where factors are computed, one of which copies its input."""
    nodes, (x, *given) = old.nodes, old.node.input
    mode = old.said.get("mode", b"nearest").decode().replace("bilinear", "linear")  # as opset 1 calls it
    own = old.said.get("scales") or [1.0, 1.0, *(old.said.get(f"{side}_scale", 1.0) for side in ("height", "width"))]
    known = _known(old.scope, given[0]) if given else np.asarray(own)
    scales = given[0] if given else nodes.constant(own, "float32", name="scales")
    grows, shrinks = (True, True) if known is None else (bool((known > 1).any()), bool((known < 1).any()))
    shrinks &= mode == "nearest"
    if grows and shrinks and known is not None:
        return "nearest pixels are rounded down along an axis that grows, and up along another that shrinks"
    if grows and shrinks:
        one = nodes.constant([1.0], "float32", name="one")
        larger, scales = (nodes.add(operator, scales, one) for operator in ("Max", "Min"))
        x = _resized(nodes, x, larger, mode, "floor")
    _resized(nodes, x, scales, mode, "ceil" if shrinks else "floor", old.node.output[0])
    return None


def _known(scope: Scope, name: str) -> Any:
    found = scope.constant(name)
    return found.array if isinstance(found, Constant) else None


def _resized(nodes: Nodes, x: str, scales: str, mode: str, nearest: str, output: str = "") -> str:
    roi = nodes.constant([], "float32", name="roi")
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    how |= {"nearest_mode": nearest} if mode == "nearest" else {}
    return nodes.add("Resize", x, roi, scales, output=output, **how)


_BINARY = "Add Sub Mul Div Pow And Or Xor Equal Greater Less"
_RULES: dict[str, tuple[int, Callable[[_Old], str | None]]] = {
    **dict.fromkeys(_BINARY.split(), (_BROADCASTING, _broadcast)),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (_BROADCASTING, _recurrent)),
    "PRelu": (_BROADCASTING, _p_relu),
    "Gemm": (_BROADCASTING, _without_broadcast),
    "Dropout": (_BROADCASTING, _used),
    "Slice": (10, _slice),
    "TopK": (10, _top_k),
    "Clip": (11, _clip),
    "Pad": (11, _pad),
    "Upsample": (11, _resize),
    "Resize": (11, _resize),
    "BatchNormalization": (9, _normalised),
    "Scatter": (11, _scattered),
    "Scan": (9, _scan),
}
"""For each operator that changes from opset 6 on, the first one that needs no rule, and the rule for earlier ones."""
