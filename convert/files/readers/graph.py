"""The graph of an exported program: which module each node belongs to, and what lies around a convolution in its own.

A node ``aten.conv2d`` is the layer that its weight belongs to only if that layer's module computes nothing else. A
padding mode, a subclass that pads in ``forward``, or soft attention, which smooths the image first, are nodes of the
same module around it. A padding that ``nn.Conv2d`` has a word for is given back; of anything else, its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...errors import CheckpointError
from .common.limits import Budget
from .operations import is_out_of_place, written_arguments

CONV = "torch.ops.aten.conv"
TRANSPOSED = "conv_transpose"
_PAD = "torch.ops.aten.pad.default"
_PASSED_OVER = ("torch.ops.aten._assert", "torch.ops.quantized_decomposed.")  # checks, and rounding to integers
_MODES = ("constant", "reflect", "replicate", "circular")
_POSITIONAL = 1  # PyTorch's code for an argument that is given by its place
_NODE = 200  # bytes that a node takes here
_NAME = 100  # bytes that a name takes in a set and among those that wait
_LOOKS = 4  # steps that an argument takes
_LETTERS = 1000  # of a text that are looked through in a step

Node = Mapping[str, object]


class Graph:
    """Nodes of a program.

    Args:
        nodes: The nodes as JSON has them.
        budget: Charged for what is kept.

    Attributes:
        budget: Charged for what is looked at, too.
        convolutions: The nodes that are convolutions of any kind.
        inner: Names of those in graphs that nodes take, such as the branches of a condition.
        written: Names of the tensors that nodes may write into.
        made: Names of the tensors that nodes give.

    Raises:
        CheckpointError: Two nodes give a tensor of one name, or a node is given an argument twice.
    """

    def __init__(self, nodes: list[object], budget: Budget) -> None:
        found = [node for node in nodes if isinstance(node, dict)]
        budget.spend(memory=_NODE * len(found))
        self.budget = budget
        self.convolutions = [node for node in found if target(node).startswith(CONV)]
        self.inner = list(_inner_convolutions(found, budget))
        self._makers: dict[str, Node] = {}
        for node in found:
            _check_arguments(node)
            for name in _outputs(node):
                if name in self._makers:
                    raise CheckpointError(f"the program computes {name[:100]!r} twice")
                self._makers[name] = node
        self.made = self._makers.keys()
        self.written = self._sources(name for node in found for name in _written(node))
        self._users: dict[str, list[Node]] = {name: [] for node in self.convolutions for name in _outputs(node)}
        for node in found:
            for name in set(inputs(node)):
                if name in self._users:
                    self._users[name].append(node)

    def _sources(self, names: Iterable[str]) -> frozenset[str]:
        """Tensors of some names, and all that these are computed from, since they may be views of them.

        A convolution's result is a tensor of its own.
        """
        found: set[str] = set()
        seen: set[int] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            maker = self._makers.get(name)
            self.budget.spend(memory=0 if name in found else _NAME, steps=1)
            found.add(name)
            if maker is not None and id(maker) not in seen and not target(maker).startswith(CONV):
                seen.add(id(maker))
                pending += inputs(maker)
        return frozenset(found)

    def within(self, node: Node, layer: str) -> tuple[dict[str, object], str | None]:
        """What a call of a layer computes besides one of its nodes, a convolution.

        Returns:
            The padding before it and its mode, if that is all; or what else there is.
        """
        if module(node) != layer:
            return {}, None
        call = _call(node)
        after = [user for name in _outputs(node) for user in self._users[name] if self._is_of(user, call)]
        before = self.maker(node, "input")
        if not after and (before is None or not self._is_of(before, call)):
            return {}, None
        padding = None if after or before is None else self._padding(node, before)
        if padding is None:
            other = target((after or [before or node])[0]).removeprefix("torch.ops.")
            return {}, f"its layer computes more than a convolution ({other[:100]})"
        return padding, None

    def maker(self, node: Node, argument: str) -> Node | None:
        """The node that computes an argument of another; charged, since many may have the same."""
        found = self._makers.get(named(arguments(node), argument))
        if found is not None:
            self.budget.spend(steps=_values(found))
        return found

    def _is_of(self, node: Node, call: tuple[str, str] | None) -> bool:
        """Whether a node is computed in a call of a module, and more than passed over."""
        self.budget.spend(steps=1 + len(_stack(node)) // _LETTERS)
        return _call(node) == call and not target(node).startswith(_PASSED_OVER)

    def _padding(self, node: Node, before: Node) -> dict[str, object] | None:
        """The padding that a node before a convolution adds, if ``nn.Conv2d`` has a word for it."""
        given, first = arguments(before), self.maker(before, "self")
        pads, mode = given.get("pad"), given.get("mode", "constant")
        if target(before) != _PAD or (first is not None and self._is_of(first, _call(node))) or mode not in _MODES:
            return None
        if misplaced(before):
            return None
        if not isinstance(pads, list) or pads[::2] != pads[1::2] or TRANSPOSED in target(node):
            return None
        own, value = arguments(node).get("padding", [0]), given.get("value")
        if not (own == "valid" or (isinstance(own, list) and not any(own))) or value not in (None, 0):
            return None
        return {"padding": pads[::-2], "padding_mode": "zeros" if mode == "constant" else mode}


def _inner_convolutions(nodes: Sequence[Node], budget: Budget) -> Iterator[str]:
    """Names of the convolutions in the graphs that nodes take, each behind the name of its graph."""
    graphs = [graph for node in nodes for graph in _graphs(node)]
    while graphs:
        name, inner = graphs.pop()
        budget.spend(memory=(_NODE + 4 * len(name)) * len(inner), steps=len(inner))
        for place, node in enumerate(inner):
            if target(node).startswith(CONV):
                yield f"{name}.{node_name(node) or place}"
            graphs += ((f"{name}.{own}", parts) for own, parts in _graphs(node))


def _graphs(node: Node) -> Iterator[tuple[str, Sequence[Node]]]:
    """Names and nodes of the graphs that a node takes."""
    for entry in _entries(node):
        argument = entry.get("arg")
        taken = argument.get("as_graph") if isinstance(argument, dict) else None
        graph = taken.get("graph") if isinstance(taken, dict) else None
        if isinstance(taken, dict) and isinstance(graph, dict):
            yield str(taken.get("name")), [inner for inner in _list(graph.get("nodes")) if isinstance(inner, dict)]


def _written(node: Node) -> Iterator[str]:
    """Names of the tensors that a node may write into: all that it takes, if PyTorch does not know it."""
    names = written_arguments(target(node))
    for entry in _entries(node):
        if names is None or entry.get("name") in names:
            yield from _names([entry.get("arg")])


def misplaced(node: Node) -> bool:
    """Whether a node is given an argument at the place of another, whatever name it gives it."""
    placed = {str(entry.get("name")) for entry in _entries(node) if entry.get("kind") == _POSITIONAL}
    return is_out_of_place(target(node), placed)


def _check_arguments(node: Node) -> None:
    """Refuses a node that is given an argument twice; PyTorch takes the last."""
    names = [name for entry in _entries(node) if (name := entry.get("name"))]
    if len({str(name) for name in names}) < len(names):
        raise CheckpointError(f"the program gives {node_name(node)[:100]!r} an argument twice")


def node_name(node: Node) -> str:
    """What a program calls a node."""
    name = node.get("name")
    return name if isinstance(name, str) else ""


def module(node: Node) -> str | None:
    """The name of the innermost module that a node comes from, or None if the program does not say."""
    call = _call(node)
    return None if call is None else call[1]


def _call(node: Node) -> tuple[str, str] | None:
    """Which call of which module a node comes from: a module may be called many times."""
    parts = _stack(node).rpartition(";")[2].split(",", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else None


def _stack(node: Node) -> str:
    metadata = node.get("metadata")
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    return stack if isinstance(stack, str) else ""


def target(node: Node) -> str:
    """What a node computes."""
    found = node.get("target")
    return found if isinstance(found, str) else ""


def arguments(node: Node) -> dict[str, object]:
    """A node's arguments by name: tensors by their names, numbers, texts and lists; not those that are not given."""
    return {name: value for name, value in map(_argument, _entries(node)) if value is not None}


def named(given: Mapping[str, object], argument: str) -> str:
    """The name of the tensor that is an argument, or nothing."""
    found = given.get(argument)
    return found if isinstance(found, str) else ""


def _argument(entry: Mapping[str, object]) -> tuple[str, object]:
    value = entry.get("arg")
    if not isinstance(value, dict) or len(value) != 1:
        return "", None
    ((kind, content),) = value.items()
    if kind == "as_none":
        return "", None
    if isinstance(content, dict):
        content = content.get("name")
    name = entry.get("name")
    return name if isinstance(name, str) else "", content


def _outputs(node: Node) -> Iterator[str]:
    """Names of the tensors that a node gives."""
    return _names(_list(node.get("outputs")))


def inputs(node: Node) -> Iterator[str]:
    """Names of the tensors that a node takes."""
    return _names([entry.get("arg") for entry in _entries(node)])


def _names(values: list[object]) -> Iterator[str]:
    """Names of the tensors among some values of JSON, however deep in lists they are."""
    pending = values[::-1]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += reversed(value)
        elif isinstance(value, dict):
            name = value.get("name")
            if isinstance(name, str):
                yield name
            pending += (part for kind, part in value.items() if kind != "as_graph")


def _values(node: Node) -> int:
    """How many values a node's arguments have, or a little fewer."""
    contents = [
        content for entry in _entries(node) if isinstance(arg := entry.get("arg"), dict) for content in arg.values()
    ]
    return 1 + _LOOKS * len(contents) + sum(len(content) for content in contents if isinstance(content, list))


def _entries(node: Node) -> list[Mapping[str, object]]:
    """A node's arguments as JSON has them."""
    return [entry for entry in _list(node.get("inputs")) if isinstance(entry, dict)]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
