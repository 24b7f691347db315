"""Operations that are others in turn, which have rules: each is put in their place, with its own module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...programs.walk import operator_name

aten = torch.ops.aten
_Put = Callable[..., fx.Node]


def _weight_norm(put: _Put, v: fx.Node, g: fx.Node, dim: int = 0) -> fx.Node:
    """v (g / |v|), with a norm for each place along a dimension; in which order, rounds as often."""
    axes = v.meta["val"].ndim
    others = list(range(axes)) if dim == -1 else [axis for axis in range(axes) if axis != dim % axes]
    return put(aten.mul.Tensor, v, put(aten.div.Tensor, g, put(aten.linalg_vector_norm.default, v, 2, others, True)))


DECOMPOSED: dict[str, Callable[..., fx.Node]] = {"_weight_norm": _weight_norm}


def decompose(graph: fx.GraphModule) -> None:
    """Puts others in the place of a graph's operations."""
    for node in list(graph.graph.nodes):
        is_operation = isinstance(node.target, torch._ops.OpOverload)
        made = DECOMPOSED.get(operator_name(node.target)) if is_operation else None
        if made is None:
            continue

        def put(target: Any, *args: Any, like: fx.Node = node) -> fx.Node:
            found = graph.graph.call_function(target, args)
            found.meta = {
                **like.meta,
                "val": target(*(one.meta["val"] if isinstance(one, fx.Node) else one for one in args)),
            }
            return found

        with graph.graph.inserting_before(node):
            node.replace_all_uses_with(made(put, *node.args, **node.kwargs))
        graph.graph.erase_node(node)
    graph.recompile()
