"""A walk through a graph of operations, and what is asked of one operation: its module, name, arguments, writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

_Kind = TypeVar("_Kind")
MODULES = "nn_module_stack"  # torch's own name of what an operation is in
VALUE = "val"
AUTOCAST = "autocast"
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Walk(fx.Interpreter):
    """One run through a program; ``operation`` says what stands for each operation's result.

    Values are let go after their last use.

    Args:
        graph: The program's.
        tensors: What stands for the network's own tensors, by the names of the graph's nodes, where it is another.
    """

    def __init__(self, graph: fx.GraphModule, tensors: Mapping[str, Any] = NOTHING) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self._tensors = tensors

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The value that stands for an operation's result: here, what the network itself computes."""
        return called(node, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """The value that stands for a node's result."""
        if n.op == "get_attr" and n.name in self._tensors:
            return self._tensors[n.name]
        if n.op != "call_function":
            return super().run_node(n)
        return self.operation(n, *self.fetch_args_kwargs_from_env(n))


def standing(values: Any, kind: type[_Kind]) -> list[_Kind]:
    """The values of a class that stand for results, among arguments."""
    leaves = tree_leaves(values, is_leaf=lambda one: isinstance(one, kind))
    return [one for one in leaves if isinstance(one, kind)]


def in_place_of(values: Any, kind: type[_Kind], chosen: Callable[[_Kind], Any]) -> Any:
    """Arguments with something in place of each value of a class that stands for a result."""
    return tree_map(
        lambda one: chosen(one) if isinstance(one, kind) else one, values, is_leaf=lambda one: isinstance(one, kind)
    )


def called(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """An operation's result as the network computes it; one that writes gets copies of what it writes to."""
    return as_written(node, *copies_of_written(node, args, kwargs))


def as_written(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """An operation's result as the network computes it, under its autocast; it writes to what it is given."""
    target: Any = node.target
    kind = node.meta.get(AUTOCAST)
    with contextlib.nullcontext() if kind is None else torch.autocast(*kind):
        return target(*args, **kwargs)


def copies_of_written(node: fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """An operation's arguments with copies in place of those that it writes to."""
    written = written_arguments(node)
    if not written:
        return args, kwargs
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    placed = (one.clone() if name in written else one for name, one in zip(names, args, strict=False))
    return tuple(placed), {name: one.clone() if name in written else one for name, one in kwargs.items()}


def written_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments that an operation writes to, by name."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return {}
    writes = [one.name for one in target._schema.arguments if one.alias_info is not None and one.alias_info.is_write]
    given = arguments_of(node)
    return {name: given[name] for name in writes if given[name] is not None}


def module_of(node: fx.Node) -> str:
    """The name of the innermost module that an operation is in; "" for the network's own code."""
    stack = list((node.meta.get(MODULES) or {}).values())
    return str(stack[-1][0]) if stack else ""


def operator_name(target: torch._ops.OpOverload) -> str:
    """An operator's name, without its namespace and overload; one that writes into its operand has the other's name."""
    name = str(target._schema.name).rpartition("::")[2]
    return name.removesuffix("_") if target._schema.is_mutable else name


def name_of(node: fx.Node) -> str:
    """An operation's name, without its namespace and overload."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return operator_name(target)
    return str(getattr(target, "__name__", target))


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Arguments of an operation by name, with defaults; by their places where it is none of torch's operators."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return {str(place): value for place, value in enumerate(node.args)} | dict(node.kwargs)
    schema = target._schema.arguments
    given = dict(zip((one.name for one in schema), node.args, strict=False)) | dict(node.kwargs)
    return {one.name: given.get(one.name, one.default_value) for one in schema}
