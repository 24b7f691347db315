"""Writes a network's ONNX file again, with attention in the place of its convolutions.

1. ``read_model`` finds the node of each layer.
2. Every node whose layer became attention gives way to nodes of one of the forms (``forms.py``).
3. Everything else keeps its meaning. Weights stay under their names, once: the new nodes take them as the old ones did.
4. It runs once beside the original (``beside.py``), with each layer within its certificate, or nothing is written.

External data and functions of the model come into the file, which is complete by itself. An older model is brought to
the version of the standard that the forms need (``lift.py``), and must give the same bits as before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from ..bounds.rounding import joined_error, literal_error
from ..errors import (
    CheckpointError,
    OptionError,
    OtherNetworkError,
    Problem,
    ToolError,
    first_line,
)
from ..heads.values import LayerValues
from ..layer.layer import SelfAttention
from ..spec import ConvSpec
from . import onnx_package
from .forms import literal, separable
from .grid import COMPUTED, STORED, Grid, Heads, Nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from .beside import Run
    from .read import ConvolutionNode


class Form(NamedTuple):
    """A way to write attention.

    Attributes:
        name: Name.
        write: Adds the attention of all heads to a graph.
        error: Its error in floating point, as ``Engine.error``, whatever the order of its sums.
    """

    name: str
    write: Callable[[Nodes, Grid, Heads, str], str]
    error: Callable[[LayerValues], float]


LITERAL = "literal"
FORMS = {
    form.name: form
    for form in (
        Form("separable", separable, joined_error),  # a softmax an axis, which is affordable at any size
        Form(LITERAL, literal, literal_error),  # scores, softmax over all keys, products: as the paper writes it
    )
}
"""The forms by name."""
DEFAULT_FORM = "separable"


def form_named(name: str) -> Form:
    """The form of a name, or an OptionError if there is none."""
    if name not in FORMS:
        raise OptionError(f"there is no form {name!r}; there are {', '.join(FORMS)}")
    return FORMS[name]


def refusal(layer: LayerValues) -> str | None:
    """Why a layer cannot be written as ONNX, or None if it can."""
    if layer.content is not None:
        return "its content terms have no form in ONNX here"
    if layer.axis_scores is not None:
        return "its positional scores are learned tables, which have no form in ONNX here"
    if not layer.regime.is_read:
        return "its alpha and centers have no values, as on the meta device"
    return None


def layer_nodes(layer: LayerValues, form: str, *, x: str, weight: str, bias: str, output: str) -> list[NodeProto]:
    """The nodes that compute a layer, of which only geometry, positions and precision are looked at.

    From the names of the input, [batch, in_channels, *size], of the weight as the convolution holds it and of the bias,
    or "", they compute the output of the name that is given, [batch, out_channels, *output size].
    """
    nodes, spec, stored, computed = Nodes(output), layer.spec, layer.weight.dtype, layer.regime.dtype
    if stored != computed:
        x, weight = (nodes.cast(part, COMPUTED[computed]) for part in (x, weight))
        bias = bias and nodes.cast(bias, COMPUTED[computed])
    attended = FORMS[form].write(nodes, Grid.of(nodes, spec, x), Heads.of(layer), weight)
    if bias:
        own = nodes.reshaped(bias, -1, *[1] * spec.axes)
        attended = nodes.add("Add", attended, own, name="with_bias", description="The bias of the output projection.")
    nodes.add("Cast", attended, output=output, name="output", to=STORED[stored], description=str(spec))
    return nodes.written


VERSION, FORM, SOURCE, LAYERS = (f"conv2attn.{key}" for key in ("version", "form", "source_sha256", "layers"))
"""Keys of the metadata that a file gets."""
_LARGEST = 2**31 - 1  # bytes of a protocol buffer
_SCORES = 2**30  # bytes of a layer's scores, beyond which the literal form is not run to check it


@dataclass(frozen=True)
class WholeModel:
    """A network in which convolutions are attention, ready to be written.

    Attributes:
        model: The network.
        form: Form of the attention.
        replaced: Convolution nodes, each with the layer that takes its place and the nodes that compute that.
        left: Convolution nodes whose layers are not attention, with the reason.
        refused: Convolution nodes whose layers are attention that cannot take their place.
        ran: A run of the original, or None if no engine runs it.
        notes: Checks that could not be made, in sentences.
    """

    model: ModelProto
    form: str
    replaced: tuple[tuple[ConvolutionNode, SelfAttention, list[NodeProto]], ...]
    left: tuple[Problem, ...]
    refused: tuple[Problem, ...]
    ran: Run | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, one for each node that is replaced."""
        return tuple(found.layer for found, _, _ in self.replaced)

    def write(self, path: Path) -> None:
        """Runs the network beside the original, and writes its file.

        Raises:
            CheckpointError: It would be larger than an ONNX file can be.
            OtherNetworkError: It does not run, or a layer computes something else.
        """
        reason = self.difference()
        if reason is not None:
            raise OtherNetworkError(f"the network with attention is not written: {reason}")
        self.save(path)

    def save(self, path: Path) -> None:
        """Writes the file; a CheckpointError if it would be larger than an ONNX file can be."""
        if self.model.ByteSize() > _LARGEST:
            raise CheckpointError("with attention, the network would be larger than an ONNX file can be (2 GB)")
        path.write_bytes(self.model.SerializeToString())

    def difference(self, ran: Run | None = None) -> str | None:
        """Why the network is not the original, or None: it runs, and each layer is within its certificate.

        Layers get the input that they have in the network, or one of their own where they lie in a graph within a node,
        or that input is not finite. All other nodes are those of the original.

        Args:
            ran: A run of the original, if not the one on a small drawn input.
        """
        ran = ran or self.ran
        if ran is None:
            return None
        from .check import difference

        return difference(self, ran)


def attention_model(
    path: Path,
    attention: Callable[[str], nn.Module | None],
    *,
    form: str,
    source_sha256: str = "",
    remarks: Mapping[str, Mapping[str, object]] | None = None,
    run: bool = True,
) -> WholeModel:
    """Puts attention into the file of a network.

    Args:
        path: The file.
        attention: Module of a layer, by the layer's name; a ``SelfAttention`` takes the place of the layer's nodes.
        form: Name of the form.
        source_sha256: SHA-256 of the file that the network came from, for the metadata.
        remarks: Metadata of each layer by its name, besides its geometry, heads and alpha.
        run: Whether to run the network beside the file.

    Raises:
        CheckpointError: The file is damaged, or cannot be brought to the version of the standard that the forms need.
        OtherNetworkError: In that version it computes something else.
    """
    whole = _replacements(path, attention, form, run=run)
    _replace_nodes([(found, nodes) for found, _, nodes in whole.replaced])
    layers = {found.layer: layer for found, layer, _ in whole.replaced}
    records = {name: _record(layer) | dict((remarks or {}).get(name, {})) for name, layer in layers.items()}
    texts = {VERSION: version("conv2attn"), FORM: form, SOURCE: source_sha256, LAYERS: json.dumps(records)}
    for key, value in texts.items():
        whole.model.metadata_props.add(key=key, value=value)
    return whole


def flaw(path: Path) -> str | None:
    """The first thing that onnx's checker finds wrong with a file, with the shapes that it infers; None if nothing."""
    try:
        onnx_package("checking ONNX files").checker.check_model(str(path), full_check=True)
    except ToolError:
        raise
    except Exception as error:  # ValidationError, InferenceError, and protobuf's own
        return first_line(error)
    return None


def _replacements(path: Path, attention: Callable[[str], nn.Module | None], form: str, *, run: bool) -> WholeModel:
    """The network as it is, and the nodes that could take the places of its convolutions; as ``attention_model``."""
    form_named(form)
    onnx_package("writing ONNX files")
    from .beside import NotRunError, drawn_run
    from .check import literal_bytes, same_bits
    from .constants import load_model
    from .lift import OPSET, lifted, opset_of
    from .read import read_model

    model, _ = load_model(path)
    ran, notes = None, list[str]()
    try:
        ran = drawn_run(path) if run else None
    except NotRunError as error:
        notes.append(f"The file was not run beside the original, which does not run here: {error}.")
    before = opset_of(model)
    model = lifted(model, path)
    if ran is not None and before < OPSET:
        same_bits(path, before, model, ran)

    replaced, left, refused = [], list[Problem](), list[Problem]()
    for found in read_model(model, path).nodes:
        layer = attention(found.layer)
        if not isinstance(layer, SelfAttention):
            left.append(Problem(found.layer, found.described.problem or "its layer is not attention"))
        elif (reason := _refusal(found, layer)) is not None:
            refused.append(Problem(found.layer, reason))
        else:
            replaced.append((found, layer, _attention_nodes(found, layer, form)))
    if ran is not None and form == LITERAL and literal_bytes(model, [pair[:2] for pair in replaced], ran) > _SCORES:
        ran = None
        notes.append("The file was not run beside the original: a layer's scores would take more than 1 GiB.")
    return WholeModel(model, form, tuple(replaced), tuple(left), tuple(refused), ran, notes)


def _replace_nodes(replaced: Sequence[tuple[ConvolutionNode, Sequence[NodeProto]]]) -> None:
    """Puts nodes in the place of others, in the graphs that these lie in."""
    scopes = dict.fromkeys(found.scope for found, _ in sorted(replaced, key=lambda pair: -pair[0].scope.depth))
    for scope in scopes:  # the innermost first: those around them copy them
        graph, places = scope.graph, {found.place: nodes for found, nodes in replaced if found.scope is scope}
        nodes = [new for place, node in enumerate(graph.node) for new in places.get(place, (node,))]
        del graph.node[:]
        graph.node.extend(nodes)


def _refusal(found: ConvolutionNode, layer: SelfAttention) -> str | None:
    if layer.weight.dtype != found.dtype:
        return f"its layer is in {layer.weight.dtype}, and the file in {found.dtype}"
    if not found.node.output or not found.node.output[0]:
        return "nothing takes its output"
    return refusal(layer.values())


def written_values(found: ConvolutionNode, layer: SelfAttention) -> LayerValues:
    """The layer that takes a node's place: with the node's geometry, where PyTorch pads in a module of its own."""
    values, spec = layer.values(), found.described.spec
    return values if spec is None or _stands_in(spec, values.spec) else values._replace(spec=spec)


def _attention_nodes(found: ConvolutionNode, layer: SelfAttention, form: str) -> list[NodeProto]:
    values = written_values(found, layer)
    x, weight, *bias = found.node.input
    return layer_nodes(values, form, x=x, weight=weight, bias=bias[0] if bias else "", output=found.node.output[0])


def _stands_in(spec: ConvSpec, layer: ConvSpec) -> bool:
    """Whether a node's geometry is that in whose place its layer pads by the size (``network.traced_geometry``)."""
    return (
        layer.is_dynamic
        and not spec.is_dynamic
        and any(layer.reach)
        and spec.pads == tuple((r // 2, r - r // 2) for r in layer.reach)
    )


def _record(layer: SelfAttention) -> dict[str, object]:
    return {"geometry": str(layer.spec), "heads": layer.num_heads, "alpha": sorted(set(layer.regime.alpha))}
