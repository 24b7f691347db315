"""Whether two networks are the same program: the graphs that ``torch.export`` gives are equal, node for node.

A converted network in the exact regime calls the CNN's own operations on the CNN's own tensors. Then the difference is
0, wherever an operation gives the same bits for the same numbers. This is why it is as fast; ``sampled.py`` shows that
it is attention.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_flatten


def is_same_program(cnn: nn.Module, model: nn.Module, image: Tensor) -> bool:
    """Whether two networks are one program for images of a size; False where torch exports one of them not at all.

    Args:
        cnn: One network, in eval mode.
        model: The other; its parameters are taken to be the same where they have the same name and numbers.
        image: An input of both.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # torch's own, about its internals
            one, other = (torch.export.export(network, (image,)) for network in (cnn, model))
    except Exception:  # whatever the networks' code and torch's exporter raise
        return False
    return _lines(one) == _lines(other) and _same_tensors(one, other)


def _lines(program: ExportedProgram) -> list[Any]:
    """The nodes that matter, each with its operation and its arguments, nodes among them by their number."""
    inputs = {spec.arg.name: (spec.kind, spec.target) for spec in program.graph_signature.input_specs}
    numbers: dict[fx.Node, int] = {}
    lines: list[Any] = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and not node.users:
            continue  # a tensor that nothing reads
        numbers[node] = len(numbers)
        args, shape = tree_flatten((node.args, node.kwargs))
        read = [("node", numbers[one]) if isinstance(one, fx.Node) else one for one in args]
        what = inputs[node.name] if node.op == "placeholder" else node.target
        lines.append((node.op, what, read, shape))
    return lines


def _same_tensors(one: ExportedProgram, other: ExportedProgram) -> bool:
    """Whether tensors of the same name are the same, bit for bit, among those that are read."""
    names = {spec.target for spec in one.graph_signature.input_specs if spec.target is not None and _is_read(one, spec)}
    held = [{**program.state_dict, **program.constants} for program in (one, other)]
    return all(_same(held[0].get(name), held[1].get(name)) for name in names)


def _is_read(program: ExportedProgram, spec: Any) -> bool:
    return any(node.name == spec.arg.name and node.users for node in program.graph.nodes if node.op == "placeholder")


def _same(one: Any, other: Any) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one is other
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and (one is other or torch.equal(_bytes(one), _bytes(other)))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)
