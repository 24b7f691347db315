"""ONNX models: their tensors, and the geometry that the attributes of their convolution nodes carry.

The file is walked as a protocol buffer, tensors are mapped, and the graph is never run. Field numbers are those of
onnx.proto (github.com/onnx/onnx). Graphs in the attributes of nodes (If, Loop, Scan) are walked with the names that
they see, and functions of the model once for each call, with what they are given.

A layer is what its node computes. Exporters fold a batch normalisation behind a convolution into the node's weights;
where the file tells that, or leaves it open, the layer carries a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....errors import CheckpointError
from ..common.beside import OpenBeside
from ..common.geometry import StoredConvolution
from ..common.limits import MAX_DEPTH, MAX_NAME, MAX_TENSORS, text_size
from ..common.stored import Source
from .constants import DERIVING, constant, derived
from .convolutions import CONVOLUTIONS
from .found import ConvolutionNode, Found, named_layers
from .naming import layer_names
from .nodes import Node, attribute_name, read_node
from .protobuf import Message
from .scales import FOLLOWED, Scales
from .scopes import Functions, Known, Scope, Unknown
from .tensors import NotPlain, read_tensor, sparse_name

_GRAPH, _FUNCTION = 7, 25  # of a model
_NODE, _INITIALIZER, _INPUT, _SPARSE = 1, 5, 11, 15  # of a graph
_VALUE_NAME = 1  # of a graph's input
_INPUTS, _OUTPUTS, _BODY, _DEFAULT = 4, 5, 7, 11  # of a function
_DESCRIPTION = 400  # bytes that the description of a tensor takes
_NODE_STEPS, _CALL_STEPS, _CONVOLUTION_STEPS = 10, 60, 120  # a node; what a graph in it, or a convolution, adds
_NORMALISATION = "BatchNormalization"
_READ = frozenset((*DERIVING, *FOLLOWED, "Constant"))  # operators besides convolutions whose inputs are read
_GIVEN = Unknown("an input of its graph, computed when it runs")
_EITHER = Unknown("an input of a graph within the model's, and has numbers there, too")
_FEW = Unknown("sparse")


def read_onnx(source: Source, open_beside: OpenBeside) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
    """Tensors of an ONNX model by name, and its convolutions.

    Args:
        source: The file.
        open_beside: Opens a file that holds external data.

    Raises:
        CheckpointError: The file is damaged, has several graphs, or names external data that cannot be used.
    """
    walk = _walked(source, open_beside)
    return walk.tensors, walk.layers()


def read_nodes(source: Source, open_beside: OpenBeside) -> list[ConvolutionNode]:
    """The convolution nodes of an ONNX model, each with what ``read_onnx`` says of its layer; arguments likewise."""
    walk = _walked(source, open_beside)
    walk.layers()
    return walk.nodes


def _walked(source: Source, open_beside: OpenBeside) -> _Walk:
    model = Message(source, 0, source.size)
    walk = _Walk(source, open_beside)
    graphs = []
    for part in model.fields():
        if part.number == _FUNCTION:
            walk.functions.add(model.message(part))
        elif part.number == _GRAPH:
            graphs.append(model.message(part))
    graphs = [graph for graph in graphs if graph.end > graph.start]
    if len(graphs) > 1:
        raise CheckpointError(f"{source.path} holds {len(graphs)} graphs")
    for graph in graphs:
        walk.graph(graph, Scope(source), None, 0)
    return walk


class _Walk:
    """What was found so far in a model.

    Args:
        source: The file.
        open_beside: Opens a file that holds external data.

    Attributes:
        tensors: The tensors by name.
        nodes: The convolution nodes, once ``layers`` was called.
        functions: What nodes may call.
    """

    def __init__(self, source: Source, open_beside: OpenBeside) -> None:
        self._source, self._open_beside = source, open_beside
        self.tensors: dict[str, object] = {}
        self.functions = Functions(source)
        self.nodes: list[ConvolutionNode] = []
        self._found: list[Found] = []
        self._calls = 0  # functions that the walk is in
        self._scales = Scales()
        self._prefixes: dict[str, int] = {}
        self._is_normalised = False  # whether a batch normalisation is left in the graph

    def layers(self) -> dict[str, StoredConvolution]:
        """The convolutions by the names of their layers; ``nodes`` then has the node of each."""
        self.nodes, layers = named_layers(self._found, self._scales, self._keep, normalised=self._is_normalised)
        names = layer_names(layers, self._source.budget)
        self.nodes = [replace(node, layer=names[node.layer]) for node in self.nodes]
        return {
            names[name]: stored if names[name] == name else replace(stored, original=name)
            for name, stored in layers.items()
        }

    def graph(self, message: Message, scope: Scope, bound: Mapping[str, Message] | None, depth: int) -> None:
        """Walks a graph: first what it defines for all of its nodes, then these, each after those it depends on.

        Args:
            message: The graph.
            scope: Its names, which it adds to.
            bound: What attributes that refer to those of a function stand for; None outside functions.
            depth: How many graphs and functions lie around it.
        """
        for part in message.fields():
            if part.number == _INITIALIZER:
                self._initializer(message.message(part), scope)
            elif part.number == _SPARSE:
                scope.define(sparse_name(message.message(part)), _FEW)
        for part in message.fields():
            if part.number == _INPUT:
                name = message.message(part).last_text(_VALUE_NAME)
                if not scope.holds(name):
                    scope.define(name, _GIVEN)
                elif depth:  # an initializer is the default of the input of its name, and within a node all are given
                    scope.doubt(name, _EITHER)
        for part in message.fields():
            if part.number == _NODE:
                self._node(message.message(part), scope, bound, depth)

    def _initializer(self, message: Message, scope: Scope) -> None:
        name, tensor = read_tensor(message, self._open_beside)
        key = scope.key(name)
        known = Known(key, tensor, key)
        scope.define(name, known)
        self._keep(known)

    def _keep(self, known: Known) -> None:
        """Adds a tensor to those of the file."""
        if isinstance(known.tensor, NotPlain) or self.tensors.get(known.key) is known.tensor:
            return
        if known.key in self.tensors:
            raise CheckpointError(f"{self._source.path} has two tensors called {known.key[:100]!r}")
        self._source.budget.spend(memory=_DESCRIPTION)
        self.tensors[known.key] = known.tensor
        self._check_count()

    def _check_count(self) -> None:
        if len(self.tensors) + len(self._found) > MAX_TENSORS:
            raise CheckpointError(f"{self._source.path} has more than {MAX_TENSORS} tensors")

    def _is_wanted(self, node: Node) -> bool:
        known = node.operator in CONVOLUTIONS or (not node.domain and node.operator in _READ)
        return known or self.functions.called_by(node) is not None

    def _node(self, message: Message, scope: Scope, bound: Mapping[str, Message] | None, depth: int) -> None:
        self._source.budget.spend(steps=_NODE_STEPS)
        node = read_node(message, bound, self._is_wanted, self._open_beside)
        if (function := self.functions.called_by(node)) is not None:
            self._call(function, node, scope, depth)
            return
        value = self._value(node, scope)
        self._is_normalised |= node.operator == _NORMALISATION
        for attribute, graph in node.graphs:
            inner = Scope(self._source, self._prefix(scope, f"{_label(node)}.{attribute}"), scope)
            self.graph(graph, inner, bound, self._deeper(depth))
        computed = Unknown(f"computed by {node.operator}")
        for number, name in enumerate(node.outputs):
            scope.define(name, computed if number else value)

    def _value(self, node: Node, scope: Scope) -> Known | Unknown:
        """What the first output of a node is; a convolution and a constant are remembered."""
        computed = Unknown(f"computed by {node.operator}")
        if node.operator in CONVOLUTIONS:
            self._convolution(node, scope)
            return computed._replace(integers=len(self._found) - 1) if node.operator == "ConvInteger" else computed
        if node.domain or not node.outputs or node.operator not in _READ:
            return computed
        key = scope.key(node.outputs[0])
        if node.operator == "Constant":
            value = constant(node, key)
            if value is not None and "value" in node.tensors:
                self._keep(value)
            return value or computed
        inputs = [scope.find(name) for name in node.inputs]
        if node.operator in DERIVING:
            value = derived(node, [known if isinstance(known, Known) else None for known in inputs], key)
            if value is not None:
                return value
        return self._scales.follow(node, inputs) if node.operator in FOLLOWED else computed

    def _convolution(self, node: Node, scope: Scope) -> None:
        self._source.budget.spend(steps=_CONVOLUTION_STEPS)
        name = scope.key(node.name or f"{node.operator}_{len(self._found)}")
        self._found.append(Found(node, name, scope, is_called=bool(self._calls)))
        self._check_count()

    def _call(self, function: Message, node: Node, scope: Scope, depth: int) -> None:
        """Walks a function's body with what a node gives it, and gives the node's outputs their meaning."""
        inner = Scope(self._source, self._prefix(scope, _label(node)))
        bound, inputs, outputs, bodies = dict[str, Message](), 0, list[str](), list[Message]()
        for part in function.fields():
            if part.number == _INPUTS:
                given = scope.find(node.input(inputs))
                inner.define(function.text(part), given or _GIVEN)
                inputs += 1
            elif part.number == _OUTPUTS:
                outputs.append(function.text(part))
            elif part.number == _DEFAULT:
                default = function.message(part)
                bound[attribute_name(default)] = default
            elif part.number == _BODY:
                self._source.budget.spend(memory=_DESCRIPTION)
                bodies.append(function.message(part))
        self._calls += 1
        for body in bodies:
            self._node(body, inner, {**bound, **node.messages}, self._deeper(depth))
        self._calls -= 1
        computed = Unknown(f"computed by {node.operator}")
        for number, name in enumerate(node.outputs):
            found = inner.find(outputs[number]) if number < len(outputs) else None
            scope.define(name, found or computed)

    def _deeper(self, depth: int) -> int:
        """One more than a depth, if that is not the most."""
        if depth >= MAX_DEPTH:
            raise CheckpointError(f"{self._source.path} nests graphs more than {MAX_DEPTH} deep")
        return depth + 1

    def _prefix(self, scope: Scope, label: str) -> str:
        """What the names of a graph within a node get in front; no two graphs get the same."""
        prefix = f"{scope.prefix}{label}."
        if len(prefix) > MAX_NAME:
            raise CheckpointError(f"{self._source.path} nests graphs whose names together have over {MAX_NAME} letters")
        self._source.budget.spend(memory=_DESCRIPTION + text_size(prefix), steps=_CALL_STEPS)
        count = self._prefixes[prefix] = self._prefixes.get(prefix, 0) + 1
        return prefix if count == 1 else self._prefix(scope, f"{label}_{count}")


def _label(node: Node) -> str:
    return node.name or node.operator or "node"
