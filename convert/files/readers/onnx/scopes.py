"""Tensors that the names of a graph stand for, computed where they depend on nothing but tensors of the file.

A weight may come to its convolution through other nodes: transposed as TensorFlow's exporter stores it, dequantised,
cast, cut from a larger tensor, scaled. Those nodes are run by onnx's reference implementation, all at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, OperatorSetIdProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from ....errors import CheckpointError, first_line
from .load import OWN_DOMAINS
from .tensors import as_tensor, read_tensor

DEQUANTISED = "its weights were stored as integers, and are dequantised: (integer - zero point) * scale"
_ROUNDED = "its weights went through QuantizeLinear, which rounds them, and DequantizeLinear"
_MOST_NAMES = 64  # tensors between a weight and those of the file
_RUN = frozenset(
    (
        *(
            "Identity",
            "Cast",
            "CastLike",
            "Constant",
            "Shape",
            "Transpose",
            "Reshape",
            "Squeeze",
            "Unsqueeze",
            "Flatten",
        ),
        *("Slice", "Split", "Concat", "Gather", "Add", "Sub", "Mul", "Div", "Pow", "Neg", "Abs", "Sqrt", "Reciprocal"),
        *("Exp", "Log", "Clip", "Min", "Max", "Round", "Where", "ReduceMean", "ReduceSum", "ReduceSumSquare"),
        *("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin", "QuantizeLinear", "DequantizeLinear"),
    )
)
"""Operators that are run. None makes many numbers of a few, as Expand and Tile do."""


@dataclass(frozen=True)
class Constant:
    """A tensor whose numbers are in the file, or follow from it.

    Attributes:
        key: Name among the tensors of the model.
        tensor: The tensor.
        origin: Key of the tensor in the file that its numbers come from; of the largest one, if there are several.
        note: Remark on how they were computed, or None.
    """

    key: str
    tensor: Tensor
    origin: str
    note: str | None = None


class Scope:
    """Names of one graph.

    Args:
        graph: The graph.
        opsets: Versions of the operators.
        prefix: Put before its names, so that they differ from those of every other graph.
        outer: Graph whose names are seen here, too.

    Attributes:
        prefix: As given.
        makers: Nodes by the names of their outputs.
        users: Nodes by the names of their inputs.

    Raises:
        CheckpointError: A name stands for two tensors.
    """

    def __init__(
        self, graph: GraphProto, opsets: Iterable[OperatorSetIdProto], prefix: str = "", outer: Scope | None = None
    ) -> None:
        self.prefix, self._outer, self._opsets = prefix, outer, list(opsets)
        self._given = {port.name for port in graph.input}
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name for tensor in graph.sparse_initializer}
        self._shapes = {port.name: port.type.tensor_type.shape for port in (*graph.input, *graph.value_info)}
        self._found: dict[str, Constant | str] = {}
        self.makers: dict[str, NodeProto] = {}
        self.users: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.users.setdefault(name, []).append(node)
            for name in filter(None, node.output):
                if name in self.makers or name in self._stored or name in self._sparse:
                    raise CheckpointError(f"two tensors are called {name[:100]!r}")
                self.makers[name] = node

    def within(self, graph: GraphProto, prefix: str) -> Scope:
        """Names of a graph within a node of this one."""
        return Scope(graph, self._opsets, prefix, self)

    def tensors(self) -> Iterator[Constant]:
        """Tensors of the graph and of its Constant nodes, but for those that PyTorch has no dtype for."""
        constants = [name for name, node in self.makers.items() if _value(node) is not None]
        for name in (*self._stored, *constants):
            found = self._own(name)
            if isinstance(found, Constant):
                yield found

    def constant(self, name: str) -> Constant | str:
        """The tensor that a name stands for, or why it is not known, as the end of "its weight is ..."."""
        scope = self._scope_of(name)
        if scope is None:
            return "computed or not in the file"
        if scope._hides(name):
            return "of a name that a graph around has, too"
        if scope._outer is not None and name in scope._stored and name in scope._given:
            return "an input of a graph within the model's, and has numbers there, too"
        return scope._own(name)

    def key(self, name: str) -> str:
        """A name among those of all graphs."""
        return self.prefix + name

    def size(self, name: str) -> list[int] | None:
        """Pixels of a tensor [batch, channels, *size] along each axis, or None if the file leaves them open."""
        scope = self._scope_of(name)
        shape = None if scope is None else scope._shapes.get(name)
        found = [] if shape is None else [dimension.dim_value for dimension in shape.dim[2:]]
        return found if found and all(found) else None

    def _scope_of(self, name: str) -> Scope | None:
        """The innermost graph that has a name."""
        if any(name in names for names in (self._given, self._stored, self._sparse, self.makers)):
            return self
        return None if self._outer is None else self._outer._scope_of(name)

    def _hides(self, name: str) -> bool:
        """Whether a graph around has a name, too: the standard forbids that, and implementations disagree on it."""
        return self._outer is not None and self._outer._scope_of(name) is not None

    def _own(self, name: str) -> Constant | str:
        """As ``constant``, for a name of this graph."""
        if name not in self._found:
            self._found[name] = self._constant(name)
        return self._found[name]

    def _constant(self, name: str) -> Constant | str:
        if name in self._stored:
            return self._read(self._stored[name], name)
        if name in self._sparse:
            return "sparse"
        if name in self._given:
            return "an input of its graph, computed when it runs"
        node = self.makers[name]
        if node.op_type == "Identity" and node.domain in OWN_DOMAINS:
            return self.constant(node.input[0])
        value = _value(node)
        return self._read(value, name) if value is not None else self._computed(node, name)

    def _read(self, proto: TensorProto, name: str) -> Constant | str:
        try:
            tensor = read_tensor(proto)
        except Exception as error:  # whatever onnx raises for numbers that do not have the tensor's shape or type
            raise CheckpointError(f"the tensor {name[:100]!r} is damaged: {first_line(error)}") from error
        if tensor is None:
            return f"of ONNX type {TensorProto.DataType.Name(proto.data_type)}, which PyTorch does not have"
        return Constant(self.key(name), tensor, self.key(name))

    def _computed(self, node: NodeProto, name: str) -> Constant | str:
        """The output of a node that depends on constants alone."""
        steps: list[NodeProto] = []
        leaves: dict[str, TensorProto] = {}
        keys: dict[str, str] = {}
        tensor = self._run(name, steps, leaves) if self._gather(name, steps, leaves, keys) else None
        if tensor is None:
            return f"computed by {node.op_type}"
        sizes = {keys[leaf]: math.prod(proto.dims) for leaf, proto in leaves.items()}
        origin = max(sizes, key=sizes.__getitem__, default=self.key(name))
        operators = {step.op_type for step in steps}
        dequantised = DEQUANTISED if "DequantizeLinear" in operators else None
        return Constant(self.key(name), tensor, origin, _ROUNDED if "QuantizeLinear" in operators else dequantised)

    def _gather(self, name: str, steps: list[NodeProto], leaves: dict[str, TensorProto], keys: dict[str, str]) -> bool:
        """Lists the nodes that make a tensor, each after those it needs, and the tensors of the file that they need.

        Args:
            name: The tensor.
            steps: Gets the nodes.
            leaves: Gets the tensors of the file.
            keys: Gets the keys of all tensors that were visited.

        Returns:
            Whether the tensor depends on nothing else.
        """
        scope = self._scope_of(name)
        if not name or name in keys:
            return True
        if scope is None or scope._hides(name) or len(keys) == _MOST_NAMES:
            return False
        keys[name] = scope.key(name)
        if name in scope._stored and (scope._outer is None or name not in scope._given):
            leaves[name] = scope._stored[name]
            return True
        node = scope.makers.get(name)
        if node is None or node.op_type not in _RUN or node.domain not in OWN_DOMAINS:
            return False
        if not all(scope._gather(given, steps, leaves, keys) for given in node.input):
            return False
        if node not in steps:
            steps.append(node)
        return True

    def _run(self, name: str, steps: list[NodeProto], leaves: dict[str, TensorProto]) -> Tensor | None:
        """The tensor that some nodes make, or None if they cannot be run."""
        ports = [helper.make_empty_tensor_value_info(leaf) for leaf in leaves]
        graph = helper.make_graph(steps, "constant", ports, [helper.make_empty_tensor_value_info(name)])
        try:
            evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets))
            feeds = {leaf: numpy_helper.to_array(proto) for leaf, proto in leaves.items()}
            (output,) = evaluator.run([name], feeds)
            return as_tensor(output)
        except Exception:  # whatever the reference raises for tensors that do not fit together
            return None


def _value(node: NodeProto) -> TensorProto | None:
    """The tensor that a Constant node holds, unless it holds numbers or text in another way."""
    if node.op_type != "Constant" or node.domain not in OWN_DOMAINS:
        return None
    return next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
