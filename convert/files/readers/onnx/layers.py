"""Convolution nodes of a model, and the layers that they make.

A layer is what its node computes. Nodes with one weight and one geometry share a layer. Exporters fold a batch
normalisation behind a convolution into the node's weights; where the file tells that, or leaves it open, the layer
carries a note.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from onnx import GraphProto, ModelProto, NodeProto
from torch import Tensor

from ..described import DescribedConvolution, add_layer, layer_name
from .convolutions import CONVOLUTIONS, convolution, input_name
from .folding import folding_note
from .load import graphs_of, inner_graphs, reading
from .naming import layer_names
from .scopes import Scope

_QUANTISED = "_quantized"  # ONNX Runtime's tools put it behind a weight's name


@dataclass(frozen=True)
class ConvolutionNode:
    """A convolution node and its layer.

    Attributes:
        node: The node.
        graph: The graph that it lies in.
        place: Its number in that graph.
        layer: Name of its layer.
        described: The convolution that it computes.
        depth: Nodes around it, in whose attributes its graph lies.
        dtype: Precision of its weight, or None if that is not known.
    """

    node: NodeProto
    graph: GraphProto
    place: int
    layer: str
    described: DescribedConvolution
    depth: int
    dtype: torch.dtype | None = None


class ReadModel:
    """A model that is read, graph by graph.

    Args:
        model: The model, as ``load_model`` gives it.

    Attributes:
        nodes: Convolution nodes, with the names that the file gives to their layers.
        layers: Convolutions, by those names.

    Raises:
        CheckpointError: The model is damaged.
    """

    def __init__(self, model: ModelProto) -> None:
        self.nodes: list[ConvolutionNode] = []
        self.layers: dict[str, DescribedConvolution] = {}
        self._scopes: list[Scope] = []
        self._used: dict[str, Tensor] = {}
        self._prefixes: dict[str, int] = {}
        operators = {node.op_type for graph in graphs_of(model.graph) for node in graph.node}
        self._is_normalised = "BatchNormalization" in operators
        self._walk(model.graph, Scope(model.graph, model.opset_import), 0)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file, and those that the layers name, by their names.

        Raises:
            CheckpointError: A tensor is damaged.
        """
        return {stored.key: stored.tensor for scope in self._scopes for stored in scope.tensors()} | self._used

    def _walk(self, graph: GraphProto, scope: Scope, depth: int) -> None:
        """Reads a graph and those within its nodes."""
        self._scopes.append(scope)
        for place, node in enumerate(graph.node):
            if node.op_type in CONVOLUTIONS:
                self._add(node, graph, place, scope, depth)
            for attribute, inner in inner_graphs(node):
                prefix = self._prefix(f"{scope.prefix}{node.name or node.op_type}.{attribute}")
                self._walk(inner, scope.within(inner, prefix), depth + 1)

    def _add(self, node: NodeProto, graph: GraphProto, place: int, scope: Scope, depth: int) -> None:
        """Adds a convolution under its weight's name where that ends in "weight", else under its node's."""
        described, constants = convolution(node, scope)
        origin = constants[0].origin.removesuffix(_QUANTISED) if constants else ""
        metadata = {entry.key: entry.value for entry in node.metadata_props}
        has_bias, normalised = bool(input_name(node, 2)), self._is_normalised
        folding = folding_note(metadata, origin, has_bias=has_bias, normalised=normalised)
        described = replace(described, note="; ".join(filter(None, (described.note, folding))) or None)
        if described.spec is not None:
            self._used |= {constant.key: constant.tensor for constant in constants}
        name = scope.key(node.name or f"{node.op_type}_{len(self.nodes)}")
        own = layer_name(origin) if origin.endswith("weight") else name
        add_layer(self.layers, own, described, otherwise=name)
        layer = own if self.layers[own] == described else name
        dtype = constants[0].tensor.dtype if constants else None
        self.nodes.append(ConvolutionNode(node, graph, place, layer, described, depth, dtype))

    def _prefix(self, name: str) -> str:
        """A prefix for the names of a graph, different from all others."""
        count = self._prefixes[name] = self._prefixes.get(name, 0) + 1
        return f"{name}." if count == 1 else self._prefix(f"{name}_{count}")


def read_model(model: ModelProto, path: Path) -> ReadModel:
    """Reads a loaded model, and gives its layers names that modules can have.

    Args:
        model: The model.
        path: Its file, for errors.

    Raises:
        CheckpointError: The model is damaged.
    """
    with reading(path):
        found = ReadModel(model)
    names = layer_names(found.layers)
    found.nodes = [replace(node, layer=names[node.layer]) for node in found.nodes]
    found.layers = {
        names[name]: layer if names[name] == name else replace(layer, original=name)
        for name, layer in found.layers.items()
    }
    return found
