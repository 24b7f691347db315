"""Ports by hand: torch's graph, whose operations an array library computes, each written in that library's terms.

A port gives what its library names otherwise (convolution, pooling, erf); what all of them name as NumPy does is here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map

Operation = Callable[..., Any]


def operations(xp: Any, own: dict[str, Operation]) -> dict[str, Operation]:
    """Operations by torch's names.

    Args:
        xp: The library's namespace of arrays.
        own: ``convolution``, ``max_pool`` (halving), ``erf``, ``rsqrt``, ``sigmoid`` and others in the library's terms.
    """
    rsqrt, erf = own["rsqrt"], own["erf"]

    def batch_norm(x: Any, scale: Any, shift: Any, mean: Any, variance: Any, momentum: float, eps: float) -> Any:
        shape = (1, -1, 1, 1)
        factor = scale * rsqrt(variance + eps)
        return ((x - mean.reshape(shape)) * factor.reshape(shape) + shift.reshape(shape),)

    def layer_norm(x: Any, shape: Any, scale: Any, shift: Any, eps: float) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return (centred * rsqrt((centred * centred).mean(-1, keepdims=True) + eps) * scale + shift,)

    def gelu(x: Any, approximate: str = "none") -> Any:
        if approximate == "tanh":
            return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1 + erf(x * 0.7071067811865476))

    def softmax(x: Any, axis: int, half: bool) -> Any:
        found = xp.exp(x - x.max(axis, keepdims=True))
        return found / found.sum(axis, keepdims=True)

    def split(x: Any, sizes: Any, axis: int = 0) -> Any:
        places = [sum(sizes[: place + 1]) for place in range(len(sizes) - 1)]
        return xp.split(x, places, axis=axis)

    def expand(x: Any, shape: Any) -> Any:
        old = [1] * (len(shape) - x.ndim) + list(x.shape)
        return xp.broadcast_to(x, [old[axis] if new == -1 else new for axis, new in enumerate(shape)])

    return {
        "_native_batch_norm_legit_no_training": batch_norm,
        "native_layer_norm": layer_norm,
        "gelu": gelu,
        "_softmax": softmax,
        "split_with_sizes": split,
        "expand": expand,
        "max_pool2d_with_indices": lambda x, *sizes: (own["max_pool"](x),),
        "exp": xp.exp,
        "tanh": xp.tanh,
        "relu": lambda x: xp.maximum(x, 0),
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "mean": lambda x, axes, keep=False: x.mean(tuple(axes), keepdims=keep),
        "permute": lambda x, order: xp.transpose(x, order),
        "addmm": lambda shift, x, y: x @ y + shift,
        "mm": lambda x, y: x @ y,
        "bmm": lambda x, y: x @ y,
        "view": lambda x, shape: x.reshape(shape),
        "clone": lambda x, **how: x,
        "embedding": lambda weight, tokens: weight[tokens],
        "pow": lambda x, power: x * x if power == 2 else x**power,
        "neg": lambda x: -x,
        "cat": lambda parts, axis=0: xp.concatenate(parts, axis=axis),
        **own,
    }


def by_hand(
    network: nn.Module, inputs: Tensor, table: dict[str, Operation], array: Callable[[Tensor], Any]
) -> Callable[[Any], Any]:
    """A network of a library's operations, as a function of its arrays that gives all outputs.

    Args:
        network: The network.
        inputs: Of it.
        table: The library's operations.
        array: Makes an array of a tensor.
    """
    program = torch.export.export(network, (inputs,)).run_decompositions()
    signature = program.graph_signature
    names = dict(signature.inputs_to_parameters) | dict(signature.inputs_to_buffers)
    names |= signature.inputs_to_lifted_tensor_constants
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers()), **program.constants}
    held = {place: array(tensors[name]) for place, name in names.items()}

    def run(x: Any) -> Any:
        values: dict[fx.Node, Any] = {}

        def value(given: Any) -> Any:
            return values[given] if isinstance(given, fx.Node) else given

        for node in program.graph.nodes:
            if node.op == "placeholder":
                values[node] = held.get(node.name, x)
            elif node.op == "output":
                return tuple(values[one] for one in node.args[0])
            else:
                args, kwargs = tree_map(value, (list(node.args), dict(node.kwargs)))
                is_item = node.target is operator.getitem
                name = "" if is_item else node.target._schema.name.split("::")[1]
                values[node] = args[0][args[1]] if is_item else table[name](*args, **kwargs)
        raise ValueError("the graph has no output")

    return run
