"""Networks in which a layer's attention can be seen beside its convolution, on the same input, as ONNX files.

Where the node lies in the network's own graph, both are computed from what comes to it there. A node within another one
(If, Loop, Scan) has no output that can be seen, so its layer gets a network of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from ...attention.layer import SelfAttention
from ...files.readers.onnx import onnx_package
from .nodes import STORED
from .whole import replace_nodes, replacements

if TYPE_CHECKING:
    from onnx import NodeProto

    from ...files.readers.onnx.layers import ConvolutionNode


@dataclass(frozen=True)
class Watched:
    """A layer in a watched network.

    Attributes:
        name: The layer's name.
        layer: The layer.
        x: Name of its input.
        convolution: Name of the convolution's output.
        attention: Name of the attention's output.
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

    The arguments are those of ``attention_model``, and the names of its inputs and outputs, which can be seen anyway.
    """
    made = replacements(path, attention, form)
    from onnx import helper

    replaced: list[tuple[ConvolutionNode, list[NodeProto]]] = []
    watched, shown = list[Watched](), dict[str, int]()
    for found, layer, nodes in made.replaced:
        x, output = found.node.input[0], found.node.output[0]
        names = x, f"{output}/convolution", output
        both = [_renamed(found.node, names[1]), *nodes]
        if found.scope.depth:
            watched.append(Watched(found.layer, layer, *names, own=_own_network(layer, found.node, both, names)))
            continue
        replaced.append((found, both))
        watched.append(Watched(found.layer, layer, *names))
        shown |= {name: STORED[layer.weight.dtype] for name in names if name not in given}
    replace_nodes(replaced)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in shown.items()]
    made.model.graph.output.extend(outputs)
    return made.model.SerializeToString(), watched


def _renamed(node: NodeProto, output: str) -> NodeProto:
    """A copy of a node without its name, and with another one for its output."""
    renamed = type(node)()
    renamed.CopyFrom(node)
    renamed.ClearField("name")
    renamed.output[0] = output
    return renamed


def _own_network(layer: SelfAttention, node: NodeProto, nodes: list[NodeProto], names: tuple[str, ...]) -> bytes:
    """A network of one layer, with its weights in it."""
    onnx = onnx_package("writing ONNX files")
    helper, kind = onnx.helper, STORED[layer.weight.dtype]
    weights = [layer.weight, *([] if layer.bias is None else [layer.bias])]
    tensors = [
        onnx.numpy_helper.from_array(value.detach().cpu().numpy(), name)
        for name, value in zip(node.input[1:], weights, strict=False)
    ]
    ports = [helper.make_tensor_value_info(name, kind, None) for name in names]
    graph = helper.make_graph(nodes, "layer", ports[:1], ports[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return bytes(model.SerializeToString())
