"""Networks in which a layer's attention can be seen beside its convolution, on the same input, as ONNX files.

Where the node lies in the network's own graph, both are computed from what comes to it there. A node within another one
(If, Loop, Scan) shows nothing of itself, so its layer gets a network of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ...attention.layer import SelfAttention
from ...files.readers.common.beside import Beside
from ...files.readers.common.stored import Source
from ...files.readers.onnx.model import read_nodes
from . import wire
from .nodes import STORED
from .splice import Splice, with_output
from .whole import attention_nodes, not_replaced


@dataclass(frozen=True)
class Watched:
    """A layer in a watched network.

    Attributes:
        name: The layer's name.
        layer: The layer.
        x: Name of its input.
        convolution: Name of what the convolution gives.
        attention: Name of what the attention gives.
        own: A network of its own with these names, for a node that lies within another one; else None.
    """

    name: str
    layer: SelfAttention
    x: str
    convolution: str
    attention: str
    own: bytes | None = None


def watched_model(
    path: Path, attention: Callable[[str], nn.Module | None], *, form: str, given: set[str]
) -> tuple[bytes, list[Watched]]:
    """A network that gives each layer's input, convolution and attention as outputs, besides its own.

    Args:
        path: As for ``attention_model``.
        attention: As for ``attention_model``.
        form: As for ``attention_model``.
        given: Names of the network's inputs and outputs, which are known without.
    """
    source = Source(path)
    beside = Beside(source)
    nodes, watched, shown = dict[int, list[bytes]](), list[Watched](), dict[str, bytes]()
    for found in read_nodes(source, beside.open):
        layer = attention(found.layer)
        if not_replaced(found, layer, form) is not None or not isinstance(layer, SelfAttention):
            continue
        x, output = found.node.input(0), found.node.outputs[0]
        names = x, f"{output}/convolution", output
        beside_it = with_output(source, *found.node.span, names[1])
        both = [beside_it, *attention_nodes(found, layer, form)]
        if found.is_nested:
            watched.append(Watched(found.layer, layer, *names, own=_own_network(layer, found.node.inputs, both, names)))
            continue
        nodes[found.node.span[0]] = both
        watched.append(Watched(found.layer, layer, *names))
        shown |= {name: _described(name, layer) for name in names if name not in given}
    parts = Splice(Source(path), beside.open, nodes).parts(metadata={}, outputs=shown.values())
    return b"".join(parts), watched


def _own_network(layer: SelfAttention, inputs: list[str], nodes: list[bytes], names: tuple[str, ...]) -> bytes:
    """A network of one layer, with its weights in it."""
    weights = [layer.weight, *([] if layer.bias is None else [layer.bias])]
    tensors = [
        wire.content(5, wire.tensor(value.detach().cpu().numpy(), name))
        for name, value in zip(inputs[1:], weights, strict=False)
    ]
    graph = [wire.content(1, node) for node in nodes] + [wire.text(2, "layer"), *tensors]
    graph += [
        wire.content(11, _described(names[0], layer)),
        *(wire.content(12, _described(n, layer)) for n in names[1:]),
    ]
    opset = 23
    return wire.integer(1, 10) + wire.content(7, b"".join(graph)) + wire.content(8, wire.integer(2, opset))


def _described(name: str, layer: SelfAttention) -> bytes:
    """A ValueInfoProto with the precision alone: the shape is open."""
    kind = wire.content(1, wire.integer(1, STORED[layer.weight.dtype]))
    return wire.text(1, name) + wire.content(2, kind)
