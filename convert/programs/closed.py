"""Records in which no operation changes what another one reads.

A run with real memory says which results share it. An operation that writes gives a new value (``walk.called``), and
what shares the memory and is read later gets the numbers that were written, by index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.multiprocessing.reductions import StorageWeakRef

from ..context import silently
from ..errors import ConversionError
from .walk import MODULES, VALUE, Walk, as_written, name_of, written_arguments


class _Sharing(Walk):
    """A run that notes where each result lies: in which memory, and where in it."""

    def __init__(self, graph: fx.GraphModule, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(graph, tensors)
        self._kept: list[Any] = []
        self.memory: dict[fx.Node, int] = {}
        self.layout: dict[fx.Node, tuple[tuple[int, ...], tuple[int, ...], int]] = {}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's own result; it writes to its operands themselves."""
        return as_written(node, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """The result of a node."""
        found = super().run_node(n)
        if isinstance(found, Tensor) and found.layout == torch.strided:
            where = StorageWeakRef(found.untyped_storage())
            self._kept.append(where)  # so that its number is not used again
            self.memory[n] = where.cdata
            self.layout[n] = (tuple(found.shape), found.stride(), int(found.storage_offset()))
        return found


def close(graph: fx.GraphModule, tensors: Mapping[str, Tensor], given: Sequence[Tensor]) -> None:
    """Gives what shares memory with a tensor that is written to, and is read later, the numbers that were written.

    With T written to and W the result, a tensor N in the same memory becomes, number by number, that of W which lies at
    the same place, or its own.

    Raises:
        ConversionError: An operation writes to several tensors, or what it writes is read as another type.
    """
    writers = [node for node in graph.graph.nodes if node.op == "call_function" and written_arguments(node)]
    if not writers:
        return
    _held_once(graph)
    run = _Sharing(graph, {name: one.detach().clone() for name, one in tensors.items()})
    with torch.no_grad(), silently(), torch.random.fork_rng(devices=[]):
        run.run(*(one.clone() for one in given))
    order = {node: place for place, node in enumerate(graph.graph.nodes)}
    for node in writers:
        (target, *others) = written_arguments(node).values()
        if others or not isinstance(target, fx.Node):
            raise ConversionError(f"torch's record of {name_of(node)} writes to several tensors at once")
        _written(graph, run, order, target, node)


def _held_once(graph: fx.GraphModule) -> None:
    """Lets all that reads one of the network's own tensors read one node, so that what is written to it is seen."""
    first: dict[str, fx.Node] = {}
    for node in graph.graph.find_nodes(op="get_attr"):
        known = first.setdefault(str(node.target), node)
        if known is not node:
            node.replace_all_uses_with(known)
            graph.graph.erase_node(node)


def _written(graph: fx.GraphModule, run: _Sharing, order: dict[fx.Node, int], target: fx.Node, node: fx.Node) -> None:
    """Lets all that shares a target's memory read the result of the operation that wrote to it, from then on."""
    memory = run.memory.get(target)
    others = [one for one, where in run.memory.items() if where == memory and order[one] < order[node]]
    for one in others:
        later = [user for user in one.users if order[user] > order[node]]
        if not later:
            continue
        if one.meta[VALUE].dtype != target.meta[VALUE].dtype:  # places in memory are counted in numbers of one type
            raise ConversionError(f"{name_of(node)} writes to numbers that are read as others of another type")
        now = node if run.layout[one] == run.layout[target] else _overlaid(graph, run, order, one, target, node)
        if now is None:  # they share no number
            continue
        for user in later:
            user.replace_input_with(one, now)
        run.memory[now], run.layout[now] = run.memory[one], run.layout[one]


def _overlaid(
    graph: fx.GraphModule, run: _Sharing, order: dict[fx.Node, int], one: fx.Node, target: fx.Node, node: fx.Node
) -> fx.Node | None:
    """A tensor with the numbers of a result that lie in the same places of memory, or None if there are none."""
    places = [_places(*run.layout[each]) for each in (one, target)]
    size = 1 + max((int(each.max()) for each in places if each.numel()), default=0)
    found = torch.full((size,), -1, dtype=torch.long, device="cpu")
    found[places[1].flatten()] = torch.arange(places[1].numel(), device="cpu")
    chosen = found[places[0]]
    if not bool((chosen >= 0).any()):
        return None
    aten, result, made = torch.ops.aten, one.meta[VALUE], list[fx.Node]()
    held = {"written": chosen >= 0, "places": chosen.clamp(min=0).flatten()}

    def called(target: Any, *args: Any, like: Any) -> fx.Node:
        found = graph.graph.call_function(target, args) if target is not None else graph.graph.get_attr(*args)
        found.meta = {MODULES: node.meta.get(MODULES), VALUE: like}
        order[found] = order[node]
        made.append(found)
        return found

    with graph.graph.inserting_before(node.next):
        for kind, value in held.items():
            name = f"{node.name}_{one.name}_{kind}"
            graph.register_buffer(name, value.to(result.device), persistent=False)
            called(None, name, like=value)
        flat = called(aten.reshape.default, node, [-1], like=node.meta[VALUE].reshape(-1))
        taken = called(aten.index_select.default, flat, 0, made[1], like=result.reshape(-1))
        shaped = called(aten.reshape.default, taken, list(chosen.shape), like=result)
        return called(aten.where.self, made[0], shaped, one, like=result)


def _places(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """The place in memory of each number of a tensor."""
    found = torch.full((), offset, dtype=torch.long, device="cpu")
    for size, stride in zip(shape, strides, strict=True):
        found = found.unsqueeze(-1) + torch.arange(size, device="cpu") * stride
    return found
