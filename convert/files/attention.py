"""Attention layers in state dicts: which layers are attention, and what their tensors tell.

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

import torch
from torch import Tensor, nn

from ..attention.construction import attention_with
from ..attention.layer import SelfAttention
from ..attention.reader import geometry
from ..errors import CheckpointError, ConversionError, first_line
from ..heads.axis_scores import AXES
from ..model.convert import is_convolution
from ..model.report import LayerRecord, kind_of
from ..names import names_by_module
from ..spec import Convolution
from .keys import Expected
from .layers import convolution, layer_module
from .readers.described import DescribedConvolution

ATTENTION_KEYS = (
    "alpha",
    "log_alpha",
    "centers",
    *(f"content.{name}" for name in ("query_weight", "key_weight", "position_weight", "key_bias", "gate")),
    *(f"axis_scores.{axis}" for axis in AXES),
)
"""Keys that the state dict of an attention layer can have beside its convolution's."""


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
        zero = torch.zeros((), dtype=own[0] if own else torch.float32)
        bias = zero.expand(record.spec.out_channels) if record.spec.bias else None
        conv = convolution(record.spec, zero.expand(record.spec.weight_shape), bias)
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
            layer.add_content(keys.shape[1], gated="content.gate" in own_tensors)
        if any(table is not None for table in tables):
            layer.set_axis_scores(*(table for table in tables if table is not None))
    except ConversionError as error:
        raise CheckpointError(f"the tensors of layer {name} do not fit: {error}") from error


def holds_attention(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict has an attention layer in it."""
    names = [key.removesuffix("centers").removesuffix(".") for key in state if key.rpartition(".")[2] == "centers"]
    return any(_is_attention(state, name) for name in names)


def expected_keys(cnn: nn.Module) -> Expected:
    """The keys that the state dict of a CNN has, with their shapes, and those that it can have once it is converted."""
    names = [name for group in names_by_module(cnn, is_convolution) for name in group]
    own = {key: value.shape for key, value in cnn.state_dict().items() if isinstance(value, Tensor)}
    return {**{state_key(name, key): None for name in names for key in ATTENTION_KEYS}, **own}


def attention_layers(cnn: nn.Module, state: Mapping[str, Tensor]) -> tuple[LayerRecord, ...]:
    """The convolutions of a CNN that are attention in the state dict of the converted CNN."""
    groups = names_by_module(cnn, lambda module: isinstance(module, Convolution))
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
