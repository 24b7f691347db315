"""ONNX to ONNX: a network's file again, with attention in the place of its convolutions.

1. ``found`` reads which node computes which layer, with the reader that runs nothing and trusts no file.
2. Every node whose layer became attention gives way to nodes of one of the forms (``forms.py``).
3. Everything else keeps its bytes (``splice.py``).

Weights stay under their names, once: the new nodes take them as the old ones did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from torch import nn

from ...attention.layer import SelfAttention
from ...errors import Problem
from ...files.readers.common.beside import Beside
from ...files.readers.common.stored import Source
from ...files.readers.onnx.found import ConvolutionNode
from ...files.readers.onnx.model import read_nodes
from ...heads.values import LayerValues
from .forms import form_named, layer_nodes, refusal
from .splice import Part, Splice

REPLACED = ("Conv", "ConvTranspose")
"""The operators that attention takes the place of."""
VERSION, FORM, SOURCE, LAYERS = (f"conv2attn.{key}" for key in ("version", "form", "source_sha256", "layers"))
"""Keys of the metadata that a file gets."""


@dataclass(frozen=True)
class WholeModel:
    """A network in which convolutions are attention, ready to be written.

    Attributes:
        parts: The file, in pieces; the first file must stay as it is until they are written.
        form: How attention is written.
        layers: The names of the layers, one for each node that was replaced.
        left: The convolution nodes whose layers are no attention, with the reason.
        refused: Those whose layers are, and which it cannot take the place of.
    """

    parts: tuple[Part, ...]
    form: str
    layers: tuple[str, ...]
    left: tuple[Problem, ...]
    refused: tuple[Problem, ...]

    def write(self, path: Path) -> None:
        """Writes the file."""
        with path.open("wb") as file:
            for part in self.parts:
                file.write(part)


def attention_model(
    path: Path,
    attention: Callable[[str], nn.Module | None],
    *,
    form: str,
    source_sha256: str = "",
    told: Mapping[str, Mapping[str, object]] | None = None,
) -> WholeModel:
    """Puts attention into the file of a network.

    Args:
        path: The file, of at least the form's version of the standard.
        attention: What a layer of the file became, by its name; a ``SelfAttention`` takes the place of its nodes.
        form: Name of the form.
        source_sha256: What the file's metadata say of the file that the network came from.
        told: What the file's metadata say of each layer, by its name, besides its geometry, heads and alpha.

    Raises:
        OptionError: There is no such form.
        CheckpointError: The file is damaged.
    """
    form_named(form)
    source = Source(path)
    beside = Beside(source)
    nodes, layers = dict[int, list[bytes]](), list[str]()
    left, refused = list[Problem](), list[Problem]()
    records = dict[str, Mapping[str, object]]()
    for found in read_nodes(source, beside.open):
        layer = attention(found.layer)
        reason = not_replaced(found, layer, form)
        if reason is not None or not isinstance(layer, SelfAttention):
            kept = refused if isinstance(layer, SelfAttention) else left
            kept.append(Problem(found.layer, str(reason)))
            continue
        nodes[found.node.span[0]] = attention_nodes(found, layer, form)
        layers.append(found.layer)
        records[found.layer] = {**_record(layer), **(told or {}).get(found.layer, {})}
    texts = {VERSION: version("conv2attn"), FORM: form, SOURCE: source_sha256, LAYERS: json.dumps(records)}
    parts = Splice(Source(path), beside.open, nodes).parts(metadata=texts)
    return WholeModel(tuple(parts), form, tuple(layers), tuple(left), tuple(refused))


def not_replaced(found: ConvolutionNode, layer: nn.Module | None, form: str) -> str | None:
    """Why attention cannot take the place of a node, or None if it can."""
    if not isinstance(layer, SelfAttention):
        return found.stored.problem or "its layer is not attention"
    if found.node.operator not in REPLACED:
        return f"{found.node.operator} computes with integers, and its layer without their rounding"
    if layer.weight.dtype != found.dtype:
        return f"its layer is in {layer.weight.dtype}, and the file in {found.dtype}"
    if found.is_called:
        return "it lies in a function of the model"
    if not found.node.outputs or not found.node.outputs[0]:
        return "nothing takes its output"
    return refusal(LayerValues.of(layer), form)


def attention_nodes(
    found: ConvolutionNode, layer: SelfAttention, form: str, *, output: str | None = None
) -> list[bytes]:
    """The nodes that take the place of a convolution's; they give its output, unless that gets another name."""
    node, values = found.node, LayerValues.of(layer)
    if found.stored.spec is not None:
        values = values._replace(spec=found.stored.spec)  # what pads an input in PyTorch may be a node of its own
    output = node.outputs[0] if output is None else output
    return layer_nodes(values, form, x=node.input(0), weight=node.input(1), bias=node.input(2), output=output)


def _record(layer: SelfAttention) -> dict[str, object]:
    """What the metadata say of every layer."""
    return {"geometry": str(layer.spec), "heads": layer.num_heads, "alpha": sorted(set(layer.regime.alpha))}
