"""Reads an ONNX model: its convolution nodes, and the layers that they make, under names that modules can have.

The model's functions are put into its graph first, and external data are read from its folder.

A layer is what its node computes. Nodes with one weight and one geometry share a layer. Exporters fold a batch
normalisation behind a convolution into the node's weights; where the file tells that, or leaves it open, the layer
carries a note.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count
from pathlib import Path

import torch
from onnx import ModelProto, NodeProto
from torch import Tensor, nn

from ..spec import DescribedConvolution
from .constants import Scope, reading, scopes_of
from .convolutions import CONVOLUTIONS, described_convolution, input_name

FOLDED = "the exporter folded a batch normalisation into the weights, so the layer computes both"
COMPUTED = (
    "the exporter computed the weights, perhaps to fold in a batch normalisation, which is then part of the layer"
)
OPEN = "the file leaves open whether the weights have a batch normalisation folded in; if so, the layer computes both"
_QUANTISED = "_quantized"  # ONNX Runtime's tools put it behind a weight's name
_REWRITES, _FOLDING = "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoConv"  # written by torch's exporter
_ORIGIN = "pkg.torch.onnx."  # torch's exporter keeps such a record of every node
_COMPUTED_NAME = re.compile(r"onnx::|_v_\d+$")  # names that torch's older exporter and onnx-simplifier make up
_OPERATOR = re.compile(r"(?:Fused|QLinear)?(?:Depthwise)?(?:Conv|conv)(?:2[dD]|Transpose|Integer|olution)?(?:__\d+)?")
_SIGNS = re.compile(r"[^\w.-]+")
_TAKEN = frozenset(dir(nn.Module()))  # a module's own attributes, besides its layers


@dataclass(frozen=True)
class ConvolutionNode:
    """A convolution node and its layer.

    Attributes:
        node: The node.
        scope: The graph that it lies in.
        place: Its number in that graph.
        layer: Name of its layer.
        described: The convolution that it computes.
        dtype: Precision of its weight, or None if that is not known.
    """

    node: NodeProto
    scope: Scope
    place: int
    layer: str
    described: DescribedConvolution
    dtype: torch.dtype | None


@dataclass(frozen=True)
class ReadModel:
    """The convolutions of a model.

    Attributes:
        nodes: Convolution nodes.
        layers: Convolutions by the names of their layers, which modules can have.
        scopes: Its graphs, and those within their nodes.
        used: Tensors that the convolutions name.
    """

    nodes: tuple[ConvolutionNode, ...]
    layers: dict[str, DescribedConvolution]
    scopes: tuple[Scope, ...]
    used: Mapping[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file, and those that the layers name, by their names."""
        return {each.key: each.tensor for scope in self.scopes for each in scope.tensors()} | dict(self.used)


def read_model(model: ModelProto, path: Path) -> ReadModel:
    """Finds the convolutions of a model, as ``load_model`` gives it; its file is for errors."""
    nodes: list[ConvolutionNode] = []
    layers: dict[str, DescribedConvolution] = {}
    used: dict[str, Tensor] = {}
    with reading(path):
        scopes = tuple(scopes_of(model))
        normalised = any(node.op_type == "BatchNormalization" for scope in scopes for node in scope.graph.node)
        for scope, place, node in ((s, p, n) for s in scopes for p, n in enumerate(s.graph.node)):
            if node.op_type not in CONVOLUTIONS:
                continue
            described, constants = described_convolution(node, scope)
            used |= {constant.key: constant.tensor for constant in constants}
            origin = constants[0].origin.removesuffix(_QUANTISED) if constants else ""
            folding = folding_note(node, origin, normalised=normalised)
            described = replace(described, note="; ".join(filter(None, (described.note, folding))) or None)
            layer = name = scope.prefix + (node.name or f"{node.op_type}_{len(nodes)}")
            if origin.endswith("weight"):  # a layer is called as its weight is, unless that is another layer
                own = "" if origin == "weight" else origin.removesuffix(".weight")
                layer = own if layers.get(own, described) == described else name
            layers.setdefault(layer, described)
            dtype = constants[0].tensor.dtype if constants else None
            nodes.append(ConvolutionNode(node, scope, place, layer, described, dtype))
    names = layer_names(layers)
    named = {names[own]: each if names[own] == own else replace(each, original=own) for own, each in layers.items()}
    return ReadModel(tuple(replace(node, layer=names[node.layer]) for node in nodes), named, scopes, used)


def folding_note(node: NodeProto, weight: str, *, normalised: bool) -> str | None:
    """Remark about a batch normalisation in a node's weights, or None if there is nothing to say.

    Without a record, the question is open only if the node has a bias and the graph has no batch normalisation left.
    A weight is the name of the tensor that the node's weights come from.
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    if _FOLDING in metadata.get(_REWRITES, ""):
        return FOLDED
    if _REWRITES in metadata or any(key.startswith(_ORIGIN) for key in metadata):
        return None
    if _COMPUTED_NAME.match(weight):
        return COMPUTED
    return OPEN if input_name(node, 2) and not normalised else None


def layer_names(names: Collection[str]) -> dict[str, str]:
    """A name that a module can have for each of these, none of them twice, and none within another.

    PyTorch's exporter writes the module of a node as ``/layer1/layer1.0/conv1/Conv``, each part with all names before
    it where these are numbers: the module is ``layer1.0.conv1``. TensorFlow's writes ``model/conv2d_1/Conv2D``. A name
    becomes what is left without the operator at its end, with dots between its parts; signs become underscores. Where
    two layers would get one name, or one would lie within another, the later one's parts are joined to one, with a
    number if need be. One name alone may be "", the network itself.
    """
    if list(names) == [""]:
        return {"": ""}
    found: dict[str, str] = {}
    layers, parents = set[str](), set[str]()
    for name in names:
        parts = _parts(name)
        joined = "_".join(parts)
        for own in chain([".".join(parts), joined], (f"{joined}_{number}" for number in count(2))):
            around = set(accumulate(own.split(".")[:-1], "{}.{}".format))
            if own not in layers | parents and layers.isdisjoint(around):
                break
        found[name] = own
        layers.add(own)
        parents |= around
    return found


def _parts(name: str) -> list[str]:
    pieces = [piece for piece in name.partition(";")[0].split("/") if piece]
    if len(pieces) > 1 and _OPERATOR.fullmatch(pieces[-1]):
        pieces.pop()
    merged: list[str] = []
    for piece in pieces:
        if merged and piece.startswith(f"{merged[-1]}."):
            merged.pop()
        merged.append(piece)
    parts = [part for piece in merged for part in _SIGNS.sub("_", piece).split(".") if part] or ["layer"]
    return [f"{part}_" if part in _TAKEN else part for part in parts]
