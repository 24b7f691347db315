"""The operations of an ONNX file, and what each gives: ONNX Runtime returns inner values that are added as outputs.

Adding them keeps ONNX Runtime from fusing what it fuses otherwise. torch's exporter notes the module and the operation
that each node comes from, and the last node of an operation has its result; nodes of other files go by their own names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ConversionError, refusing
from ..onnx import onnx_package
from ..onnx.run import session
from ..programs.operations import in_words
from .pairing import Held, Key

_MOST = 2**31 - 2**20  # bytes of a model in one message
_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_WORDS = {
    "Conv": "convolution",
    "ConvTranspose": "transposed convolution",
    "Gemm": "linear",
    "MatMul": "matrix product",
    "BatchNormalization": "batch norm",
    "LayerNormalization": "layer norm",
    "GroupNormalization": "group norm",
    "Concat": "cat",
    "LeakyRelu": "leaky relu",
    "Clip": "clamp",
    "MaxPool": "max pool2d",
    "AveragePool": "avg pool2d",
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "Where": "where",
    "Transpose": "permute",
    "Unsqueeze": "unsqueeze",
    "Gather": "index select",
}
_UNTOLD = ("kernel_shape", "keep_aspect_ratio_policy", "extrapolation_value", "nearest_mode")
_USUAL = (("group", 1), ("auto_pad", "NOTSET"), ("allowzero", 0), ("antialias", 0), ("exclude_outside", 0))
_SILENT = ("Constant", "Shape", "Identity")  # operations that compute nothing


@dataclass(eq=False)
class OnnxNode:
    """A node of an ONNX file.

    Attributes:
        name: Its name.
        op: Its operation in ONNX.
        inputs: Names of what it reads.
        output: Name of its first result.
        attributes: By name.
        path: The module that it comes from, or "".
        source: torch's operation whose result it gives, where the exporter noted it.
        parts: Nodes before it that belong to the same operation.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    source: str = ""
    parts: tuple[OnnxNode, ...] = ()


class OnnxOperations:
    """The operations of an ONNX file.

    Args:
        path: The file.
        feeds: Its inputs, by name.

    Raises:
        ConversionError: ONNX Runtime does not give its inner values.
    """

    def __init__(self, path: Path, feeds: Mapping[str, Tensor]) -> None:
        onnx = onnx_package("reading ONNX files")
        model = onnx.load(str(path))
        if model.ByteSize() > _MOST:
            raise ConversionError("its inner values are not read: it is larger than 2 GiB")
        self._held = {one.name: _tensor(onnx, one) for one in model.graph.initializer}
        found = [_node(onnx, node) for node in model.graph.node if node.output and node.output[0]]
        self._held |= {
            node.output: torch.tensor(node.attributes["value"], device="cpu") for node in found if _is_constant(node)
        }
        self.nodes = _named_once([node for node in found if node.op not in _SILENT])
        known = {port.name for port in model.graph.output}
        model.graph.output.extend(
            onnx.ValueInfoProto(name=node.output) for node in self.nodes if node.output not in known
        )
        outputs = [node.output for node in self.nodes]
        with refusing("ONNX Runtime does not give its inner values"):
            runtime = session(model.SerializeToString())
            given = runtime.run(outputs, {name: one.cpu().numpy() for name, one in feeds.items()})
        self.values: dict[Any, Any] = {
            node: torch.from_numpy(one) for node, one in zip(self.nodes, given, strict=True) if hasattr(one, "dtype")
        }
        self.values |= {Held(name): one for name, one in self._held.items() if isinstance(one, Tensor)}
        self._makers = {node.output: node for node in self.nodes}
        self._silent = {node.output: node.inputs[0] for node in found if node.op == "Identity"}
        self._outputs = [one.name for one in model.graph.output][: len(known)]

    def path(self, node: OnnxNode) -> str:
        """The module that an operation comes from, or ""."""
        return node.path

    def key(self, node: OnnxNode) -> Key:
        """Name and shape."""
        value = self.values.get(node)
        return self.kind(node), tuple(value.shape) if isinstance(value, Tensor) else ()

    def kind(self, node: OnnxNode) -> str:
        """The operation in words."""
        return in_words(node.source) if node.source else _WORDS.get(node.op, node.op.lower())

    def dtype(self, node: OnnxNode) -> torch.dtype | None:
        """The type of its numbers."""
        value = self.values.get(node)
        return value.dtype if isinstance(value, Tensor) else None

    def arguments(self, node: OnnxNode) -> dict[str, Any]:
        """Those arguments that have a name in torch."""
        inputs, named = [self._read(name) for name in node.inputs], _ARGUMENTS.get(node.op)
        if self.kind(node) == "linear" and node.op != "Gemm":
            return self._product(node, inputs)
        if self.is_folded(node):
            return {}
        found = {} if named is None else named(node, inputs)
        eps = [part.attributes["epsilon"] for part in (*node.parts, node) if "epsilon" in part.attributes]
        return found | {"eps": eps[-1]} if eps else found

    def _product(self, node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
        """The arguments of a product whose bias another node adds, or none does."""
        product = next((one for one in (*node.parts, node) if one.op == "MatMul"), None)
        if product is None:
            return {}
        weight = _linear(product, [self._read(name) for name in product.inputs])
        is_biased = node.op == "Add"
        return weight | {"bias": next((one for one in inputs if isinstance(one, Tensor)), None) if is_biased else None}

    def operands(self, node: OnnxNode) -> list[OnnxNode | None]:
        """Operations whose results it reads, in their order, with None for an input of the network."""
        parts = (*node.parts, node)
        own = {part.output for part in parts}
        names = [self._silent.get(name, name) for part in parts for name in part.inputs if name and name not in own]
        return [self._makers.get(name) for name in names if name not in self._held]

    @property
    def results(self) -> list[OnnxNode | None]:
        """The operations that give the outputs, in their order."""
        return [self._makers.get(self._silent.get(name, name)) for name in self._outputs]

    def numbers(self, node: OnnxNode) -> list[float]:
        """Numbers among its attributes and inputs."""
        parts = (*node.parts, node)
        held = [self._held.get(name) for part in parts for name in part.inputs]
        found = [float(one) for one in held if isinstance(one, Tensor) and one.numel() == 1 and not one.is_complex()]
        given = [one for part in parts for one in part.attributes.values()]
        return found + [float(one) for one in given if isinstance(one, int | float)]

    def is_folded(self, node: OnnxNode) -> bool:
        """Whether it is a normalisation whose numbers went into the product before it."""
        return node.op in _PRODUCTS and self.kind(node) == "batch norm"

    def described(self, node: OnnxNode) -> str:
        """The nodes that it is, with their attributes."""
        return ", ".join(map(_described, (*node.parts, node)))

    def _read(self, name: str) -> Any:
        """Kind of an input: a tensor that the file holds, an operation, or None."""
        return self._held.get(name, self._makers.get(name))


def _node(onnx: Any, node: Any) -> OnnxNode:
    values = {one.name: _attribute(onnx, one) for one in node.attribute}
    noted = {one.key: one.value for one in node.metadata_props}
    scopes, classes = (_list(noted.get(key, "")) for key in (_SCOPES, _CLASSES))
    source = classes[-1].split(".") if classes else []
    return OnnxNode(
        name=node.name or node.output[0],
        op=node.op_type,
        inputs=tuple(node.input),
        output=node.output[0],
        attributes={name: value for name, value in values.items() if value is not None},
        path=scopes[-2] if len(scopes) > 1 else "",
        source=source[1] if len(source) > 1 and source[0] == "aten" else "",
    )


def _list(text: str) -> list[str]:
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def _named_once(nodes: list[OnnxNode]) -> list[OnnxNode]:
    """Of the nodes that one operation of torch became, the last one alone has its name, and has the others as parts."""
    for node, after in pairwise(nodes):
        if node.source and (node.source, node.path) == (after.source, after.path) and node.output in after.inputs:
            after.parts, node.parts, node.source = (*node.parts, node), (), ""
    return nodes


def _described(node: OnnxNode) -> str:
    """A node, with those attributes that are not what most nodes have."""
    unread = () if node.attributes.get("mode") == "cubic" else ("cubic_coeff_a",)
    given = [(name, node.attributes[name]) for name in sorted(node.attributes) if name not in unread]
    told = [f"{name}={_shown(value)}" for name, value in given if not _is_usual(name, value)]
    return f"{node.op} with {', '.join(told)}" if told else node.op


def _is_usual(name: str, value: Any) -> bool:
    if name in ("strides", "dilations"):
        return set(value) == {1}
    return name in _UNTOLD or (name, value) in _USUAL


def _is_constant(node: OnnxNode) -> bool:
    return node.op == "Constant" and "value" in node.attributes


def _attribute(onnx: Any, one: Any) -> Any:
    """The value of an attribute; None for graphs."""
    value = onnx.helper.get_attribute_value(one)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return None if isinstance(value, onnx.GraphProto) else list(value) if isinstance(value, list | tuple) else value


def _tensor(onnx: Any, one: Any) -> Any:
    try:
        return torch.from_numpy(onnx.numpy_helper.to_array(one).copy())
    except (TypeError, ValueError):  # a type that torch does not have
        return None


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _at(inputs: list[Any], place: int) -> Any:
    return inputs[place] if place < len(inputs) else None


def _convolution(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    found = {"weight": _at(inputs, 1), "bias": _at(inputs, 2), "groups": node.attributes.get("group", 1)}
    axes = len(node.attributes.get("kernel_shape", [])) or (inputs[1].ndim - 2 if isinstance(inputs[1], Tensor) else 0)
    for name, there in (("stride", "strides"), ("dilation", "dilations")):
        found[name] = node.attributes.get(there, [1] * axes)
    return found | _pads(node, axes)


def _pads(node: OnnxNode, axes: int) -> dict[str, Any]:
    """The padding, where it is the same at both ends, as torch's is."""
    pads = node.attributes.get("pads", [0] * 2 * axes)
    is_known = node.attributes.get("auto_pad", "NOTSET") == "NOTSET" and pads[:axes] == pads[axes:]
    return {"padding": pads[:axes]} if is_known else {}


def _linear(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    weight = _at(inputs, 1)
    if isinstance(weight, Tensor) and weight.ndim == 2 and not node.attributes.get("transB", 0):
        weight = weight.T
    return {"weight": weight, **({"bias": _at(inputs, 2)} if node.op == "Gemm" else {})}


def _norm(*names: str, eps: float = 1e-5) -> Callable[[OnnxNode, list[Any]], dict[str, Any]]:
    def named(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
        held = {name: _at(inputs, 1 + place) for place, name in enumerate(names)}
        return held | {"eps": node.attributes.get("epsilon", eps)}

    return named


def _pool(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    kernel = node.attributes.get("kernel_shape", [])
    found = {"kernel_size": kernel, "stride": node.attributes.get("strides", [1] * len(kernel))}
    found["ceil_mode"] = bool(node.attributes.get("ceil_mode", 0))
    if node.op == "AveragePool":
        found["count_include_pad"] = bool(node.attributes.get("count_include_pad", 0))
    return found | _pads(node, len(kernel))


def _softmax(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    """Its axis, where it is counted from the end, as networks mostly do."""
    axis = node.attributes.get("axis", -1)
    return {"dim": axis} if axis < 0 else {}


def _scaled(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    """The number that an operation multiplies by, adds or takes away."""
    other = _at(inputs, 1)
    return {"other": other.item()} if isinstance(other, Tensor) and other.numel() == 1 else {}


def _parts(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    return {"tensors": inputs}


def _clip(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    ends = [_at(inputs, place) for place in (1, 2)]
    low, high = (one.item() if isinstance(one, Tensor) and one.numel() == 1 else one for one in ends)
    return {"min": low, "max": high, "min_val": low, "max_val": high}


_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_RENAMED: dict[str, dict[str, tuple[str, Any]]] = {
    "Gelu": {"approximate": ("approximate", "none")},
    "LeakyRelu": {"negative_slope": ("alpha", 0.01)},
    "Elu": {"alpha": ("alpha", 1.0)},
}


def _resize(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    return {"align_corners": node.attributes.get("coordinate_transformation_mode") == "align_corners"}


def _renamed(node: OnnxNode, inputs: list[Any]) -> dict[str, Any]:
    return {name: node.attributes.get(there, usual) for name, (there, usual) in _RENAMED[node.op].items()}


_ARGUMENTS: dict[str, Callable[[OnnxNode, list[Any]], dict[str, Any]]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Gemm": _linear,
    "MatMul": _linear,
    "BatchNormalization": _norm("weight", "bias", "running_mean", "running_var"),
    "LayerNormalization": _norm("weight", "bias"),
    "AveragePool": _pool,
    "MaxPool": _pool,
    "Clip": _clip,
    "Resize": _resize,
    "Softmax": _softmax,
    "Concat": _parts,
    **dict.fromkeys(("Mul", "Add", "Sub", "Div"), _scaled),
    **dict.fromkeys(_RENAMED, _renamed),
}
