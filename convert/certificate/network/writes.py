"""Writes of an exported program, made to new tensors where something else reads the memory that they change.

Whether two results share memory is asked of a run, not of names: dropout in eval mode, ``to``, ``contiguous`` and
``reshape`` give their operand itself in one program and a new tensor in another, and torch's own decomposition takes
each of them for a new tensor.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import ConversionError
from .call import is_mutable


class _Real(fx.Interpreter):
    """A run of the program itself, on copies, which keeps every result, so that no memory is used twice."""

    def __init__(self, exported: ExportedProgram) -> None:
        super().__init__(exported.graph_module, garbage_collect_values=False)
        self.extra_traceback = False
        held = {**exported.constants, **exported.state_dict}
        generator = torch.Generator("cpu").manual_seed(0)

        def given(spec: Any, node: fx.Node) -> Any:
            value = held.get(spec.target)
            if spec.kind == InputKind.USER_INPUT:
                like = node.meta["val"]
                drawn = torch.randn(like.shape, generator=generator, dtype=torch.float64, device="cpu")
                return drawn.to(like.dtype)
            return value.detach().clone() if isinstance(value, Tensor) else value

        inputs = [node for node in exported.graph.nodes if node.op == "placeholder"]
        with torch.no_grad():
            found = self.run(*map(given, exported.graph_signature.input_specs, inputs))
        self.outputs = [one.clone() for one in tree_leaves(found) if isinstance(one, Tensor)]

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operation; of an attention layer, numbers that depend on its input in some way."""
        if target is not torch.ops.conv2attn.attention.default:
            return super().call_function(target, args, kwargs)
        x, _, shape = args
        line = torch.linspace(-1, 1, math.prod(shape), dtype=torch.float64, device="cpu").view(shape)
        return (line + x.double().mean().tanh()).to(x.dtype)

    def memory(self, node: fx.Node) -> set[int]:
        """The memory of a result."""
        leaves = tree_leaves(self.env.get(node))
        return {one.untyped_storage().data_ptr() for one in leaves if isinstance(one, Tensor) and one.numel()}

    def is_its_operand(self, node: fx.Node) -> bool:
        """Whether an operation gave its first operand itself, or all of it under another name."""
        source = node.args[0] if node.op == "call_function" and node.args else None
        if not isinstance(source, fx.Node) or node.target is operator.getitem or is_mutable(node.target):
            return False
        one, other = self.env.get(node), self.env.get(source)
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            return False
        views = [(t.data_ptr(), t.dtype, t.shape, t.stride()) for t in (one, other)]
        return views[0] == views[1] and bool(self.memory(node))


def without_shared_writes(exported: ExportedProgram) -> ExportedProgram:
    """The program, in which a write's result is what is read from then on, as the node of the write.

    Raises:
        ConversionError: Decomposed, it computes something else.
    """
    if not any(is_mutable(node.target) for node in exported.graph.nodes):
        return exported
    real = _Real(exported)
    if not _shares_writes(exported, real):
        return exported
    for node in list(exported.graph.nodes):
        if real.is_its_operand(node):
            node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
            if not node.users:
                exported.graph.erase_node(node)
    exported.graph_module.recompile()
    found: ExportedProgram = exported.run_decompositions({})
    again = tree_map(Tensor.clone, _Real(found).outputs)[-len(real.outputs) :]
    pairs = zip(real.outputs, again, strict=True)
    if not all((one.shape == other.shape and one.equal(other)) or _is_nan(one, other) for one, other in pairs):
        raise ConversionError("it writes to memory that it reads under another name, which could not be followed")
    return found


def _is_nan(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _shares_writes(exported: ExportedProgram, real: _Real) -> bool:
    """Whether memory is read, after it was written to, under a name that is older than the write."""
    nodes = list(exported.graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    for write in nodes:
        if not is_mutable(write.target):
            continue
        written = real.memory(write)
        older = [node for node in nodes[: place[write]] if real.memory(node) & written]
        if any(node.op != "call_function" for node in older):
            return True
        if any(place[user] > place[write] for node in older for user in node.users):
            return True
    return False
