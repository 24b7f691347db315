"""An ONNX model as it is loaded, and the tensors that the names of its graph stand for.

A weight may come to its convolution through other nodes: transposed as TensorFlow's exporter stores it, dequantised,
cast, cut from a larger tensor, scaled. Where these depend on nothing but tensors of the file, onnx's reference
implementation runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    external_data_helper,
    helper,
    inliner,
    numpy_helper,
    shape_inference,
)
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from ..errors import CheckpointError, first_line
from ..plain import path_in

OWN_DOMAINS = ("", "ai.onnx")
"""The two names of the domain of ONNX's own operators."""


def load_model(path: Path) -> tuple[ModelProto, tuple[Path, ...]]:
    """Loads a model, complete in memory and without functions of its own, with every file that was read.

    Raises:
        CheckpointError: The file is damaged, is not an ONNX model, or names external data that are not in its folder.
    """
    with reading(path):
        model = onnx.load(path, load_external_data=False)
        if not model.HasField("graph"):
            raise CheckpointError("it holds no graph")
        if model.functions:
            model = inliner.inline_local_functions(model)
        files = dict.fromkeys(_load_external(tensor, path.parent) for tensor in _external_tensors(model.graph))
        attributes = (one.name for graph in graphs_of(model.graph) for node in graph.node for one in node.attribute)
        if "output_shape" in attributes:  # a ConvTranspose whose cropping depends on the size of its input
            model = shape_inference.infer_shapes(model)
    return model, (path, *files)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns any flaw found in a file, or any error of onnx, within this context into a CheckpointError."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except OSError:
        raise
    except Exception as error:  # DecodeError, ValidationError, InferenceError, and others
        raise CheckpointError(f"{path} is damaged, or not an ONNX model: {first_line(error)[:200]}") from error


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs within its nodes, each before those within it."""
    yield graph
    for node in graph.node:
        for _, inner in inner_graphs(node):
            yield from graphs_of(inner)


def inner_graphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """The graphs in a node's attributes (If, Loop, Scan), each with the attribute's name."""
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield attribute.name, graph


def _external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The tensors whose numbers lie in other files: initializers, and attributes of nodes."""
    for each in graphs_of(graph):
        attributes = [attribute for node in each.node for attribute in node.attribute]
        inner = [tensor for attribute in attributes for tensor in (attribute.t, *attribute.tensors)]
        yield from filter(external_data_helper.uses_external_data, (*each.initializer, *inner))


def _load_external(tensor: TensorProto, folder: Path) -> Path:
    """Puts a tensor's numbers into it, and gives the file that they were in.

    Not by onnx's own function, which refuses the links of a Hugging Face cache (``path_in``).
    """
    info = external_data_helper.ExternalDataInfo(tensor)
    path = path_in(folder, info.location)
    with path.open("rb") as file:
        file.seek(info.offset or 0)
        numbers = file.read(-1 if info.length is None else info.length)
    if info.length is not None and len(numbers) < info.length:
        raise CheckpointError(f"{path} ends before the numbers of {tensor.name[:100]!r}")
    tensor.raw_data = numbers
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
    return path


DEQUANTISED = "its weights were stored as integers, and are dequantised: (integer - zero point) * scale"
_ROUNDED = "its weights went through QuantizeLinear, which rounds them, and DequantizeLinear"
_NOTES = {"QuantizeLinear": _ROUNDED, "DequantizeLinear": DEQUANTISED}  # the first one that applies is given
_MOVED = "Identity Cast CastLike Constant Shape Transpose Reshape Squeeze Unsqueeze Flatten Slice Split Concat Gather"
_CHANGED = "Add Sub Mul Div Pow Neg Abs Sqrt Reciprocal Exp Log Clip Min Max Round Where"
_OTHERS = "QuantizeLinear DequantizeLinear ReduceMean ReduceSum ReduceSumSquare ReduceL1 ReduceL2 ReduceMax ReduceMin"
_RUN = frozenset(" ".join((_MOVED, _CHANGED, _OTHERS)).split())
"""Operators that are run. None makes many numbers of a few, as Expand and Tile do."""
_BY_BITS = {
    name: getattr(torch, name)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_NARROW = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}  # integers that share a byte in files


@dataclass(frozen=True)
class Constant:
    """A tensor whose numbers are in the file, or follow from it.

    Attributes:
        key: Name among the tensors of the model.
        tensor: The tensor.
        origin: Key of the tensor in the file that its numbers come from; of the largest one, if there are several.
        note: Remark on how they were computed, or None.
        array: The numbers in ONNX's own type, where PyTorch's is another.
    """

    key: str
    tensor: Tensor
    origin: str
    note: str | None = None
    array: Any = None


class Scope:
    """Names of one graph.

    Args:
        graph: The graph.
        model: The model that it belongs to.
        prefix: Put before its names, so that they differ from those of every other graph.
        outer: Graph whose names are seen here, too.
    """

    def __init__(self, graph: GraphProto, model: ModelProto, prefix: str = "", outer: Scope | None = None) -> None:
        self.graph, self.prefix, self._outer, self._opsets = graph, prefix, outer, list(model.opset_import)
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._others = {port.name: "an input of its graph, computed when it runs" for port in graph.input}
        self._others |= {tensor.values.name: "sparse" for tensor in graph.sparse_initializer}
        self._shapes = {port.name: port.type.tensor_type.shape for port in (*graph.input, *graph.value_info)}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._found: dict[str, Constant | str] = {}

    def tensors(self) -> Iterator[Constant]:
        """Tensors of the graph and of its Constant nodes, but for those that PyTorch has no dtype for."""
        constants = [name for name, node in self._makers.items() if _value(node) is not None]
        found = (self.constant(name) for name in (*self._stored, *constants))
        return (each for each in found if isinstance(each, Constant))

    def constant(self, name: str) -> Constant | str:
        """The tensor that a name stands for, or why it is not known, as the end of "its weight is ..."."""
        scope = self._scope_of(name)
        if scope is None:
            return "computed or not in the file"
        if name not in scope._found:
            scope._found[name] = scope._constant(name)
        return scope._found[name]

    def size(self, name: str) -> list[int] | None:
        """Pixels of a tensor [batch, channels, *size] along each axis, or None if the file leaves them open."""
        scope = self._scope_of(name)
        shape = None if scope is None else scope._shapes.get(name)
        found = [] if shape is None else [dimension.dim_value for dimension in shape.dim[2:]]
        return found if found and all(found) else None

    def _scope_of(self, name: str) -> Scope | None:
        if any(name in names for names in (self._stored, self._others, self._makers)):
            return self
        return None if self._outer is None else self._outer._scope_of(name)

    def _constant(self, name: str) -> Constant | str:
        if name in self._others and name not in self._stored:
            return self._others[name]
        node = self._makers.get(name)
        value = self._stored.get(name) or (_value(node) if node is not None else None)
        if value is not None:
            return self._read(value, name)
        if node is None:
            return "not in the file"
        if node.op_type == "Identity" and node.domain in OWN_DOMAINS:
            return self.constant(node.input[0])
        return self._computed(node, name)

    def _read(self, proto: TensorProto, name: str) -> Constant | str:
        try:
            array = numpy_helper.to_array(proto)
        except Exception as error:  # whatever onnx raises for numbers that do not have the tensor's shape or type
            raise CheckpointError(f"the tensor {name[:100]!r} is damaged: {first_line(error)}") from error
        key, tensor = self.prefix + name, _as_tensor(array)
        if tensor is None:
            return f"of ONNX type {TensorProto.DataType.Name(proto.data_type)}, which PyTorch does not have"
        return Constant(key, tensor, key, array=array)

    def _computed(self, node: NodeProto, name: str) -> Constant | str:
        known = node.op_type in _RUN and node.domain in OWN_DOMAINS
        inputs = {each: self.constant(each) for each in node.input if each} if known else {}
        given = {each: found for each, found in inputs.items() if isinstance(found, Constant)}
        array, failed = self._run(node, name, given) if known and len(given) == len(inputs) else (None, "")
        tensor = None if array is None else _as_tensor(array)
        if tensor is None:
            return f"computed by {node.op_type}{failed}"
        key = self.prefix + name
        largest = max(given.values(), key=lambda each: each.tensor.numel(), default=None)
        notes = {_NOTES.get(node.op_type), *(each.note for each in given.values())}
        note = next((text for text in _NOTES.values() if text in notes), None)
        return Constant(key, tensor, key if largest is None else largest.origin, note, array)

    def _run(self, node: NodeProto, name: str, given: dict[str, Constant]) -> tuple[Any, str]:
        """The output of a node of constants; None, and what onnx said, if it cannot be run."""
        if node.op_type == "DequantizeLinear":
            array = _dequantised(node, [given[each].array if each else None for each in node.input])
            if array is not None:
                return array, ""
        ports = [helper.make_empty_tensor_value_info(each) for each in given]
        graph = helper.make_graph([node], "constant", ports, [helper.make_empty_tensor_value_info(name)])
        try:
            evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets))
            (output,) = evaluator.run([name], {each: found.array for each, found in given.items()})
            return output, ""
        except Exception as error:  # whatever the reference raises for tensors that do not fit together
            return None, f", which onnx does not run: {first_line(error)}"


def _dequantised(node: NodeProto, inputs: Sequence[Any]) -> Any:
    """(x - zero point) * scale of integers, one scale for all or for each place along an axis; None for other kinds.

    Up to opset 18 onnx's own reference refuses int8 and int32.
    """
    x, scale, zero = *(np.asarray(each) for each in inputs[:2]), inputs[2] if len(inputs) > 2 else None
    said = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    axis = said.get("axis", 1)
    if x.dtype.kind not in "iu" or scale.dtype.kind != "f" or said.get("block_size") or said.get("output_dtype"):
        return None
    if scale.ndim > 1 or not (scale.size == 1 or (-x.ndim <= axis < x.ndim and x.shape[axis] == scale.size)):
        return None
    along = [1] * x.ndim
    if scale.size > 1:
        along[axis] = scale.size
    offset = 0 if zero is None else np.asarray(zero).astype(np.int64).reshape(along)
    return ((x.astype(np.int64) - offset).astype(scale.dtype) * scale.reshape(along)).astype(scale.dtype)


def scopes_of(model: ModelProto) -> Iterator[Scope]:
    """The graph of a model, and the graphs within nodes, each after the one around it."""
    scopes, prefixes = [Scope(model.graph, model)], set[str]()
    for scope in scopes:  # which grows
        yield scope
        for node in scope.graph.node:
            for attribute, inner in inner_graphs(node):
                name = f"{scope.prefix}{node.name or node.op_type}.{attribute}"
                numbered = (f"{name}_{number}." for number in count(2))
                prefix = next(each for each in chain([f"{name}."], numbered) if each not in prefixes)
                prefixes.add(prefix)
                scopes.append(Scope(inner, model, prefix, scope))


def _value(node: NodeProto) -> TensorProto | None:
    """The tensor that a Constant node holds, unless it holds numbers or text in another way."""
    if node.op_type != "Constant" or node.domain not in OWN_DOMAINS:
        return None
    return next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)


def _as_tensor(array: object) -> Tensor | None:
    """A copy of an array, also of the dtypes that onnx adds to NumPy's; None if PyTorch has no such dtype."""
    numbers: NDArray[np.generic] = np.array(array)  # a copy: arrays over a file's bytes cannot be written to
    name = numbers.dtype.name
    if name in _BY_BITS:
        return torch.from_numpy(numbers.reshape(-1).view(np.uint8)).view(_BY_BITS[name]).reshape(numbers.shape)
    if name in _NARROW:
        numbers = numbers.astype(_NARROW[name])
    return torch.from_numpy(numbers) if numbers.dtype.kind in "biufc" and numbers.dtype.isnative else None
