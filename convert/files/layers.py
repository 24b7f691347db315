"""Layers in files, as modules: convolutions that a file describes, and attention that a state dict holds.

Where no code for a network is given, a tree of its convolutions by their names stands for it: it computes nothing as a
whole, and is converted, written and loaded like any network.

A converted layer keeps the keys of its convolution, ``weight`` and ``bias``, and adds ``alpha``, ``centers`` and those
of content terms and learned tables. So a state dict tells which layers are attention and what they have learned, but
not their geometry: that is the record's (``LayerRecord``), or the architecture's.

Raises:
    CheckpointError: By every function here, for a layer that is not what its name, record or tensors say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Size, Tensor, nn

from ..errors import CheckpointError, ConversionError, first_line, listed
from ..heads.content import AXES
from ..heads.values import OUT, SPARE_KEYS
from ..layer.construction import attention_with
from ..layer.layer import SelfAttention
from ..layer.supported import ForeignConvolution
from ..network.convert import is_convolution
from ..network.modules import names_by_module
from ..network.report import LayerRecord, kind_of
from ..spec import Convolution, ConvSpec, DescribedConvolution
from ..subclasses.padded import convolution as new_convolution
from ..subclasses.padded import has_class
from ..subclasses.readers import geometry
from .keys import Expected
from .state import extra_state_of, held_state, tensors_of

ATTENTION_KEYS = (
    "alpha",
    "log_alpha",
    "centers",
    *(f"content.{name}" for name in ("query_weight", "key_weight", "position_weight", "key_bias")),
    *(f"axis_scores.{axis}" for axis in AXES),
    *SPARE_KEYS,
)
"""Keys that the state dict of an attention layer can have beside its convolution's."""


class Layers(nn.Module):
    """Layers by name, each to be called by itself: ``layers.get_submodule("stem.conv")(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Refuses: how the layers are connected is not known."""
        raise ConversionError(
            "only the layers were converted, since the file does not say how they are connected; the architecture "
            "makes a network of them"
        )


def layer_tree(convolutions: Mapping[str, DescribedConvolution], tensors: Mapping[str, Tensor]) -> nn.Module:
    """Builds the convolutions, by name, over their weights and biases, by key; "" is the name of a whole network.

    Returns:
        A ``Layers``, or the convolution whose name is "". Names of one geometry over the same tensors share a module.

    Raises:
        CheckpointError: No module can have a name.
    """
    modules: dict[str, nn.Module] = {}
    known: dict[tuple[object, ...], nn.Module] = {}
    for name, stored in convolutions.items():
        parts = (id(tensors.get(stored.weight)), None if stored.bias is None else id(tensors.get(stored.bias)))
        key = (stored.spec, stored.problem, stored.note, *parts)
        if key not in known or stored.spec is None:
            known[key] = layer_module(name, stored, tensors)
        modules[name] = known[key]
    if list(modules) == [""]:
        return modules[""]
    root = Layers()
    for name, module in modules.items():
        *parents, last = name.split(".")
        place: nn.Module = root
        try:
            for part in parents:
                if part not in place._modules:
                    place.add_module(part, Layers())
                place = place.get_submodule(part)
            place.add_module(last, module)
        except (KeyError, AttributeError) as error:
            raise CheckpointError(f"the layer {name[:100]!r} has a name that no module can have") from error
    return root


def layer_module(name: str, stored: DescribedConvolution, tensors: Mapping[str, Tensor]) -> Convolution:
    """A convolution over the tensors that it is given; a stand-in where it cannot be converted."""
    if stored.spec is None:
        return cast(Convolution, ForeignConvolution(stored.problem or "its geometry is not known"))
    if stored.weight not in tensors or (stored.bias is not None and stored.bias not in tensors):
        raise CheckpointError(f"the weights of the layer {name!r} are missing")
    weight, bias = tensors[stored.weight], None if stored.bias is None else tensors[stored.bias]
    shapes = [list(weight.shape), None if bias is None else list(bias.shape)]
    if shapes != [list(stored.spec.weight_shape), [stored.spec.out_channels] if stored.spec.bias else None]:
        wanted = f"wanted those of the geometry {stored.spec}"
        raise CheckpointError(f"layer {name!r}: weight and bias have the shapes {shapes}, {wanted}")
    if not has_class(stored.spec):
        raise CheckpointError(f"layer {name!r}: no class of convolutions has the padding of {stored.spec}")
    return stored_convolution(stored.spec, weight, bias)


def stored_convolution(spec: ConvSpec, weight: Tensor, bias: Tensor | None) -> Convolution:
    """A convolution in eval mode with these parameters, which are not copied."""
    conv = new_convolution(spec, device="meta")
    conv.weight = nn.Parameter(weight, requires_grad=weight.is_floating_point())
    if bias is not None:
        conv.bias = nn.Parameter(bias, requires_grad=bias.is_floating_point())
    return conv.eval()


def state_key(layer: str, own: str) -> str:
    """The key in a network's state dict of what a layer calls its own; a root layer has no name."""
    return f"{layer}.{own}" if layer else own


def attention_named(model: nn.Module, name: str) -> SelfAttention:
    """The attention layer of a model that has this name."""
    layer = model.get_submodule(name)
    if not isinstance(layer, SelfAttention):
        raise CheckpointError(f"{name} is not a self-attention layer; got {type(layer).__name__}")
    return layer


def described(record: LayerRecord, name: str, state: Mapping[str, Tensor]) -> DescribedConvolution:
    """The convolution that a layer was made from, in a state dict, under one of the layer's names."""
    bias = state_key(name, "bias")
    return DescribedConvolution(state_key(name, "weight"), bias if bias in state else None, record.spec)


def stored_layer(record: LayerRecord, saved: Mapping[str, Tensor], path: Path) -> SelfAttention:
    """A layer with the values that were saved; weights that only the architecture can compute are zeros."""
    name = record.name
    if record.kind is None:
        conv = layer_module(name, described(record, name, saved), saved)
    else:
        own = [value.dtype for key, value in saved.items() if key.startswith(state_key(name, "parametrizations."))]
        zero = torch.zeros((), dtype=own[0] if own else torch.float32, device="cpu")
        bias = zero.expand(record.spec.out_channels) if record.spec.bias else None
        conv = stored_convolution(record.spec, zero.expand(record.spec.weight_shape), bias)
    layer = attention_with(conv)
    configure(replace(record, kind=None), layer, saved)
    keys = {key: state_key(name, key) for key in layer.state_dict() if key not in ("weight", "bias")}
    try:
        layer.load_state_dict({key: saved[own] for key, own in keys.items()}, strict=False)
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path} does not fit the layer {name!r}: {first_line(error)}") from error
    return layer


def configure(record: LayerRecord, layer: SelfAttention, saved: Mapping[str, Tensor]) -> None:
    """Makes a newly converted layer what its record says, and the tensors that it will get."""
    name = record.name
    if layer.spec != record.spec:
        raise CheckpointError(f"layer {name} is {record.spec}, in the architecture {layer.spec}")
    if record.kind != (made := kind_of(layer)):
        own, theirs = (kind or "PyTorch's own class" for kind in (record.kind, made))
        raise CheckpointError(f"layer {name} was of {own}, in the architecture it is of {theirs}")
    layer.engine, layer.alpha_follows_dtype = record.engine, record.alpha_follows_dtype
    own_tensors = {key: saved[state_key(name, key)] for key in ATTENTION_KEYS if state_key(name, key) in saved}
    tables = [own_tensors.get(f"axis_scores.{axis}") for axis in AXES[-layer.spec.axes :]]
    try:
        if "log_alpha" in own_tensors:
            layer.train_positions()
        if (keys := own_tensors.get("content.key_weight")) is not None and keys.ndim == 3:
            layer.add_content(keys.shape[1])
        if any(table is not None for table in tables):
            layer.set_axis_scores(*(table for table in tables if table is not None))
        if record.spare is not None:
            layer.add_spare_heads(record.spare)
    except ConversionError as error:
        raise CheckpointError(f"the tensors of layer {name} do not fit: {error}") from error


def holds_attention(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict has an attention layer in it."""
    names = [key.removesuffix("centers").removesuffix(".") for key in state if key.rpartition(".")[2] == "centers"]
    return any(_is_attention(state, name) for name in names)


def expected_keys(cnn: nn.Module) -> Expected:
    """The keys that the state dict of a CNN has, with their shapes, and those that it can have once it is converted."""
    names = [name for group in names_by_module(cnn, is_convolution) for name in group]
    held = {**cnn.state_dict(), **held_state(cnn)}
    own: dict[str, Size | None] = {key: value.shape for key, value in tensors_of(held).items()}
    own |= dict.fromkeys(extra_state_of(held))
    return {**{state_key(name, key): None for name in names for key in ATTENTION_KEYS}, **own}


def attention_layers(cnn: nn.Module, state: Mapping[str, Tensor]) -> tuple[LayerRecord, ...]:
    """The convolutions of a CNN that are attention in the state dict of the converted CNN."""
    groups = names_by_module(cnn, lambda module: isinstance(module, Convolution))
    if spare := [names[0] for names in groups if state_key(names[0], OUT) in state]:
        raise CheckpointError(
            f"spare heads in {listed(spare)}: tensors do not tell how many they are; load "
            "the state dict into graft(model, heads=...).model, and keep it by save_converted"
        )
    found = ((names, cnn.get_submodule(names[0])) for names in groups if _is_attention(state, names[0]))
    return tuple(LayerRecord(names, geometry(conv)) for names, conv in found if isinstance(conv, Convolution))


def without_attention(state: Mapping[str, Tensor], records: Iterable[LayerRecord]) -> dict[str, Tensor]:
    """The tensors of a converted network that its CNN has, too."""
    extra = {state_key(name, own) for record in records for name in record.names for own in ATTENTION_KEYS}
    return {key: value for key, value in state.items() if key not in extra}


def _is_attention(state: Mapping[str, Tensor], name: str) -> bool:
    """Whether a layer has what every attention layer has, and no module of torch's."""
    strengths = any(state_key(name, key) in state for key in ("alpha", "log_alpha"))
    return strengths and all(state_key(name, key) in state for key in ("weight", "centers"))
