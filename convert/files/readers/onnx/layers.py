"""Convolution nodes of a model, and the layers that they make.

A layer is what its node computes. Nodes with one weight and one geometry share a layer. Exporters fold a batch
normalisation behind a convolution into the node's weights; where the file tells that, or leaves it open, the layer
carries a note.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from onnx import GraphProto, ModelProto, NodeProto

from ..described import DescribedConvolution, add_layer, layer_name
from .convolutions import CONVOLUTIONS, convolution, input_name
from .folding import folding_note
from .load import graphs_of, inner_graphs, reading
from .naming import layer_names
from .scopes import Constant, Scope

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


@dataclass
class ReadModel:
    """A model that was read.

    Attributes:
        nodes: Its convolution nodes.
        layers: Its convolutions, by the names of their layers.
        scopes: Its graphs.
        used: The tensors that the layers name.
    """

    nodes: list[ConvolutionNode]
    layers: dict[str, DescribedConvolution]
    scopes: list[Scope]
    used: dict[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file, and those that the layers name, by their names.

        Raises:
            CheckpointError: A tensor is damaged.
        """
        return {stored.key: stored.tensor for scope in self.scopes for stored in scope.tensors()} | self.used


@dataclass(frozen=True)
class _Found:
    """A convolution node, as ``ConvolutionNode``; its name with those of the nodes around it, and the graph's names."""

    node: NodeProto
    graph: GraphProto
    place: int
    name: str
    scope: Scope
    depth: int


def read_model(model: ModelProto, path: Path) -> ReadModel:
    """Reads a loaded model.

    Args:
        model: The model, as ``load_model`` gives it.
        path: Its file, for errors.

    Raises:
        CheckpointError: The model is damaged.
    """
    walk = _Walk(model)
    with reading(path):
        walk.graph(model.graph, Scope(model.graph, model.opset_import))
        return _named(walk.found, walk.scopes, model)


class _Walk:
    """Convolution nodes that were found in the graphs of a model so far."""

    def __init__(self, model: ModelProto) -> None:
        self._opsets = model.opset_import
        self._prefixes: dict[str, int] = {}
        self.found: list[_Found] = []
        self.scopes: list[Scope] = []

    def graph(self, graph: GraphProto, scope: Scope, depth: int = 0) -> None:
        """Walks a graph and those within its nodes."""
        self.scopes.append(scope)
        for place, node in enumerate(graph.node):
            if node.op_type in CONVOLUTIONS:
                name = scope.key(node.name or f"{node.op_type}_{len(self.found)}")
                self.found.append(_Found(node, graph, place, name, scope, depth))
            for attribute, inner in inner_graphs(node):
                prefix = self._prefix(f"{scope.prefix}{node.name or node.op_type}.{attribute}")
                self.graph(inner, Scope(inner, self._opsets, prefix, scope), depth + 1)

    def _prefix(self, name: str) -> str:
        """A prefix for the names of a graph, different from all others."""
        count = self._prefixes[name] = self._prefixes.get(name, 0) + 1
        return f"{name}." if count == 1 else self._prefix(f"{name}_{count}")


def _named(found: list[_Found], scopes: list[Scope], model: ModelProto) -> ReadModel:
    """Gives layers the names of their weights where these end in "weight", else those of their nodes."""
    normalised = any(node.op_type == "BatchNormalization" for graph in graphs_of(model.graph) for node in graph.node)
    layers: dict[str, DescribedConvolution] = {}
    used: dict[str, Tensor] = {}
    nodes = []
    for one in found:
        described, constants = _noted(one, normalised=normalised)
        if described.spec is not None:
            used |= {constant.key: constant.tensor for constant in constants}
        origin = _origin(constants)
        own = layer_name(origin) if origin.endswith("weight") else one.name
        add_layer(layers, own, described, otherwise=one.name)
        layer = own if layers[own] == described else one.name
        dtype = constants[0].tensor.dtype if constants else None
        nodes.append(ConvolutionNode(one.node, one.graph, one.place, layer, described, one.depth, dtype))
    names = layer_names(layers)
    nodes = [replace(node, layer=names[node.layer]) for node in nodes]
    renamed = {
        names[name]: layer if names[name] == name else replace(layer, original=name) for name, layer in layers.items()
    }
    return ReadModel(nodes, renamed, scopes, used)


def _noted(one: _Found, *, normalised: bool) -> tuple[DescribedConvolution, list[Constant]]:
    """The convolution of a node, with what is known of a batch normalisation in its weights."""
    described, constants = convolution(one.node, one.scope)
    metadata = {entry.key: entry.value for entry in one.node.metadata_props}
    folding = folding_note(metadata, _origin(constants), has_bias=bool(input_name(one.node, 2)), normalised=normalised)
    notes = [note for note in (described.note, folding) if note is not None]
    return replace(described, note="; ".join(notes) or None), constants


def _origin(constants: list[Constant]) -> str:
    return constants[0].origin.removesuffix(_QUANTISED) if constants else ""
