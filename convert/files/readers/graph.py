"""The graph of an exported program: which module each node belongs to, and what lies around a convolution in its own.

A node ``aten.conv2d`` is the layer that its weight belongs to only if that layer's module computes nothing else. A
padding mode, a subclass that pads in ``forward``, or soft attention, which smooths the image first, are nodes of the
same module around it. A padding that ``nn.Conv2d`` has a word for is given back; of anything else, its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...errors import CheckpointError
from .common.limits import Budget
from .node import (
    Node,
    arguments,
    call_of,
    entries,
    inputs,
    list_of,
    misplaced,
    module,
    named,
    names_in,
    node_name,
    outputs,
    stack_of,
    target,
    values_of,
)
from .operations import written_arguments

CONV = "torch.ops.aten.conv"
TRANSPOSED = "conv_transpose"
_CONVOLUTION = re.compile(r"conv(olution)?(\d|_|\.|$)")
_PAD = "torch.ops.aten.pad.default"
_PASSED_OVER = ("torch.ops.aten._assert", "torch.ops.quantized_decomposed.")  # checks, and rounding to integers
_MODES = ("constant", "reflect", "replicate", "circular")
_NODE = 200  # bytes that a node takes here
_NAME = 100  # bytes that a name takes in a set and among those that wait
_LETTERS = 1000  # of a text that are looked through in a step


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
        self.convolutions = [node for node in found if _is_convolution(node)]
        self.inner = list(_inner_convolutions(found, budget))
        self._makers: dict[str, Node] = {}
        for node in found:
            _check_arguments(node)
            for name in outputs(node):
                if name in self._makers:
                    raise CheckpointError(f"the program computes {name[:100]!r} twice")
                self._makers[name] = node
        self.made = self._makers.keys()
        self.written = self._sources(name for node in found for name in _written(node))
        self._users: dict[str, list[Node]] = {name: [] for node in self.convolutions for name in outputs(node)}
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
        call = call_of(node)
        after = [user for name in outputs(node) for user in self._users[name] if self._is_of(user, call)]
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
            self.budget.spend(steps=values_of(found))
        return found

    def _is_of(self, node: Node, call: tuple[str, str] | None) -> bool:
        """Whether a node is computed in a call of a module, and more than passed over."""
        self.budget.spend(steps=1 + len(stack_of(node)) // _LETTERS)
        return call_of(node) == call and not target(node).startswith(_PASSED_OVER)

    def _padding(self, node: Node, before: Node) -> dict[str, object] | None:
        """The padding that a node before a convolution adds, if ``nn.Conv2d`` has a word for it."""
        given, first = arguments(before), self.maker(before, "self")
        pads, mode = given.get("pad"), given.get("mode", "constant")
        if target(before) != _PAD or (first is not None and self._is_of(first, call_of(node))) or mode not in _MODES:
            return None
        if misplaced(before):
            return None
        if not isinstance(pads, list) or pads[::2] != pads[1::2] or TRANSPOSED in target(node):
            return None
        own, value = arguments(node).get("padding", [0]), given.get("value")
        if not (own == "valid" or (isinstance(own, list) and not any(own))) or value not in (None, 0):
            return None
        return {"padding": pads[::-2], "padding_mode": "zeros" if mode == "constant" else mode}


def _is_convolution(node: Node) -> bool:
    """Whether an operation is a convolution of some kind by its name, whoever it belongs to."""
    name = target(node)
    return name.startswith(CONV) or _CONVOLUTION.search(name) is not None


def _inner_convolutions(nodes: Sequence[Node], budget: Budget) -> Iterator[str]:
    """Names of the convolutions in the graphs that nodes take, each behind the name of its graph."""
    graphs = [graph for node in nodes for graph in _graphs(node)]
    while graphs:
        name, inner = graphs.pop()
        budget.spend(memory=(_NODE + 4 * len(name)) * len(inner), steps=len(inner))
        for place, node in enumerate(inner):
            if _is_convolution(node):
                yield f"{name}.{node_name(node) or place}"
            graphs += ((f"{name}.{own}", parts) for own, parts in _graphs(node))


def _graphs(node: Node) -> Iterator[tuple[str, Sequence[Node]]]:
    """Names and nodes of the graphs that a node takes."""
    for entry in entries(node):
        argument = entry.get("arg")
        taken = argument.get("as_graph") if isinstance(argument, dict) else None
        graph = taken.get("graph") if isinstance(taken, dict) else None
        if isinstance(taken, dict) and isinstance(graph, dict):
            yield str(taken.get("name")), [inner for inner in list_of(graph.get("nodes")) if isinstance(inner, dict)]


def _written(node: Node) -> Iterator[str]:
    """Names of the tensors that a node may write into: all that it takes, if PyTorch does not know it."""
    names = written_arguments(target(node))
    for entry in entries(node):
        if names is None or entry.get("name") in names:
            yield from names_in([entry.get("arg")])


def _check_arguments(node: Node) -> None:
    """Refuses a node that is given an argument twice; PyTorch takes the last."""
    names = [name for entry in entries(node) if (name := entry.get("name"))]
    if len({str(name) for name in names}) < len(names):
        raise CheckpointError(f"the program gives {node_name(node)[:100]!r} an argument twice")
