"""The convolution nodes that were found in a model, and the layers that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ..common.geometry import StoredConvolution, add_layer, layer_name
from ..common.stored import StoredTensor
from .convolutions import convolution
from .folding import folding_note
from .nodes import Node
from .scales import Scales
from .scopes import Known, Scope

_QUANTISED = "_quantized"  # what ONNX Runtime's tools put behind a weight's name


@dataclass(frozen=True)
class Found:
    """A convolution node.

    Attributes:
        node: The node.
        name: What it is called, with the graphs around it.
        scope: What its inputs' names stand for.
        is_called: Whether it lies in a function of the model, whose calls may give it other inputs.
    """

    node: Node
    name: str
    scope: Scope
    is_called: bool


@dataclass(frozen=True)
class ConvolutionNode:
    """A convolution node and its layer.

    Attributes:
        node: The node.
        layer: The name of its layer; nodes with one weight and geometry share one.
        stored: What it computes.
        is_called: As ``Found``'s.
        is_nested: Whether it lies in a graph within another node, or in a function.
        dtype: Precision of its weight, or None if that is not known.
    """

    node: Node
    layer: str
    stored: StoredConvolution
    is_called: bool
    is_nested: bool
    dtype: torch.dtype | None = None


def named_layers(
    found: Sequence[Found], scales: Scales, keep: Callable[[Known], None], *, normalised: bool
) -> tuple[list[ConvolutionNode], dict[str, StoredConvolution]]:
    """The layers by the names that the file gives them, and the layer of each node.

    Args:
        found: The nodes.
        scales: What the results of nodes over integers are multiplied by.
        keep: Called with each tensor that a layer is described by.
        normalised: Whether a batch normalisation is left in the graph.
    """
    layers: dict[str, StoredConvolution] = {}
    nodes = []
    for number, one in enumerate(found):
        node, name = one.node, one.name
        stored, used = convolution(node, one.scope, scales.of(number))
        for known in used if stored.spec is not None else ():
            keep(known)
        origin = used[0].origin.removesuffix(_QUANTISED) if used else ""
        own = layer_name(origin) if origin.endswith("weight") else name
        folding = folding_note(node, origin, has_bias=bool(node.input(2)), normalised=normalised)
        notes = [note for note in (stored.note, folding) if note is not None]
        stored = replace(stored, note="; ".join(notes) or None)
        add_layer(layers, own, stored, otherwise=name)
        layer = own if layers[own] == stored else name
        weight = used[0].tensor if used else None
        dtype = weight.dtype if isinstance(weight, StoredTensor) else None
        nodes.append(ConvolutionNode(node, layer, stored, one.is_called, bool(one.scope.prefix), dtype))
    return nodes, layers
