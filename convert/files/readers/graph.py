"""The graph of an exported program: which module each node belongs to, and what lies around a convolution in its own.

A node ``aten.conv2d`` is the layer that its weight belongs to only if that layer's module computes nothing else. A
padding mode, a subclass that pads in ``forward``, or soft attention, which smooths the image first, are nodes of the
same module around it. A padding that ``nn.Conv2d`` has a word for is given back; of anything else, its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .common.limits import Budget

CONV = "torch.ops.aten.conv"
TRANSPOSED = "conv_transpose"
_PAD = "torch.ops.aten.pad.default"
_PASSED_OVER = ("torch.ops.aten._assert", "torch.ops.quantized_decomposed.")  # checks, and rounding to integers
_MODES = ("constant", "reflect", "replicate", "circular")
_NODE = 200  # bytes that a node takes here

Node = Mapping[str, object]


class Graph:
    """Nodes of a program.

    Args:
        nodes: The nodes as JSON has them.
        budget: Charged for what is kept.

    Attributes:
        convolutions: The nodes that are convolutions of any kind.
        inner: Names of those in graphs that nodes take, such as the branches of a condition.
        written: Names of the tensors that nodes write into.
    """

    def __init__(self, nodes: list[object], budget: Budget) -> None:
        found = [node for node in nodes if isinstance(node, dict)]
        budget.spend(memory=_NODE * len(found))
        self.convolutions = [node for node in found if target(node).startswith(CONV)]
        self.inner = list(_inner_convolutions(found, budget))
        self.written = frozenset(name for node in found for name in _written(node))
        self._makers = {name: node for node in found for name in _outputs(node)}
        self._users: dict[str, list[Node]] = {name: [] for node in self.convolutions for name in _outputs(node)}
        for node in found:
            for name in _inputs(node):
                if name in self._users:
                    self._users[name].append(node)

    def within(self, node: Node, layer: str) -> tuple[dict[str, object], str | None]:
        """What a call of a layer computes besides one of its nodes, a convolution.

        Returns:
            The padding before it and its mode, if that is all; or what else there is.
        """
        if module(node) != layer:
            return {}, None
        after = [user for name in _outputs(node) for user in self._users[name] if _are_of_one_call(user, node)]
        before = self.maker(node, "input")
        if not after and (before is None or not _are_of_one_call(before, node)):
            return {}, None
        padding = None if after or before is None else self._padding(node, before)
        if padding is None:
            other = target((after or [before or node])[0]).removeprefix("torch.ops.")
            return {}, f"its layer computes more than a convolution ({other[:100]})"
        return padding, None

    def maker(self, node: Node, argument: str) -> Node | None:
        """The node that computes an argument of another."""
        return self._makers.get(str(arguments(node).get(argument)))

    def _padding(self, node: Node, before: Node) -> dict[str, object] | None:
        """The padding that a node before a convolution adds, if ``nn.Conv2d`` has a word for it."""
        given, first = arguments(before), self.maker(before, "self")
        pads, mode = given.get("pad"), given.get("mode", "constant")
        if target(before) != _PAD or (first is not None and _are_of_one_call(first, node)) or mode not in _MODES:
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
    for entry in _list(node.get("inputs")):
        argument = entry.get("arg") if isinstance(entry, dict) else None
        taken = argument.get("as_graph") if isinstance(argument, dict) else None
        graph = taken.get("graph") if isinstance(taken, dict) else None
        if isinstance(taken, dict) and isinstance(graph, dict):
            yield str(taken.get("name")), [inner for inner in _list(graph.get("nodes")) if isinstance(inner, dict)]


def _written(node: Node) -> Iterator[str]:
    """Names of the tensors that a node changes: PyTorch's operations do so that end in _, or are given an output."""
    given = arguments(node)
    operation = target(node).removeprefix("torch.ops.").split(".")
    if len(operation) > 1 and operation[1].endswith("_") and "self" in given:
        yield str(given["self"])
    if "out" in given:
        yield str(given["out"])


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
    metadata = node.get("metadata")
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    parts = stack.rpartition(";")[2].split(",", 2) if isinstance(stack, str) else []
    return (parts[0], parts[1]) if len(parts) == 3 else None


def _are_of_one_call(other: Node, node: Node) -> bool:
    return _call(other) == _call(node) and not target(other).startswith(_PASSED_OVER)


def target(node: Node) -> str:
    """What a node computes."""
    found = node.get("target")
    return found if isinstance(found, str) else ""


def arguments(node: Node) -> dict[str, object]:
    """A node's arguments by name: tensors by their names, numbers, texts and lists; not those that are not given."""
    return {name: value for name, value in map(_argument, _list(node.get("inputs"))) if value is not None}


def _argument(entry: object) -> tuple[str, object]:
    value = entry.get("arg") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(value, dict) or len(value) != 1:
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


def _inputs(node: Node) -> Iterator[str]:
    """Names of the tensors that a node takes."""
    return _names([entry.get("arg") for entry in _list(node.get("inputs")) if isinstance(entry, dict)])


def _names(values: list[object]) -> Iterator[str]:
    for value in values:
        contents = list(value.values()) if isinstance(value, dict) else []
        for content in contents[0] if contents and isinstance(contents[0], list) else contents:
            name = content.get("name") if isinstance(content, dict) else None
            if isinstance(name, str):
                yield name


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
