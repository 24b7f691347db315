"""Attention layers in files: the record of one in a folder, and their keys in a converted network's state dict.

A converted layer keeps the keys of its convolution, ``weight`` and ``bias``, and adds ``alpha``, ``centers`` and those
of content terms and learned tables. So a state dict tells which layers are attention and what they have learned, but
not their geometry: that is the record's, or the architecture's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.computed import is_computed
from ..attention.construction import attention_with
from ..attention.layer import SelfAttention
from ..attention.read import OfSubclass
from ..attention.reader import geometry
from ..engines import AUTO
from ..errors import CheckpointError, ConversionError, first_line
from ..heads.axis_scores import AXES
from ..model.convert import is_convolution
from ..names import names_by_module
from ..spec import CONVOLUTIONS, Convolution, ConvSpec
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


@dataclass(frozen=True)
class LayerEntry:
    """One attention layer, without what its tensors tell.

    Attributes:
        names: Fully qualified names of the layer.
        spec: Its geometry.
        engine: Its engine.
        alpha_follows_dtype: As ``SelfAttention.alpha_follows_dtype``.
        kind: The convolution's class where it is not a plain one of PyTorch's, so that only the architecture makes it.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    engine: str = AUTO
    alpha_follows_dtype: bool = True
    kind: str | None = None

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention) -> LayerEntry:
        """Describes a layer."""
        return cls(names, layer.spec, layer.engine, layer.alpha_follows_dtype, _kind(layer))

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data, which ``plain.from_plain`` reads."""
        return vars(self) | {"names": list(self.names), "spec": self.spec.to_json()}

    def described(self, name: str, state: Mapping[str, Tensor]) -> DescribedConvolution:
        """The convolution that the layer was made from, in a state dict, under one of the layer's names."""
        bias = state_key(name, "bias")
        return DescribedConvolution(state_key(name, "weight"), bias if bias in state else None, self.spec)

    def layer(self, saved: Mapping[str, Tensor], path: Path) -> SelfAttention:
        """The layer with the values that were saved; weights that only the architecture can compute are zeros.

        Raises:
            CheckpointError: The values are missing, or do not fit the entry.
        """
        name = self.names[0]
        if self.kind is None:
            conv = layer_module(name, self.described(name, saved), saved)
        else:
            own = [value.dtype for key, value in saved.items() if key.startswith(state_key(name, "parametrizations."))]
            zero = torch.zeros((), dtype=own[0] if own else torch.float32)
            bias = zero.expand(self.spec.out_channels) if self.spec.bias else None
            conv = convolution(self.spec, zero.expand(self.spec.weight_shape), bias)
        layer = attention_with(conv)
        replace(self, kind=None).configure(layer, saved)
        keys = {key: state_key(name, key) for key in layer.state_dict() if key not in ("weight", "bias")}
        if missing := [key for key in keys.values() if key not in saved]:
            raise CheckpointError(f"{path} lacks {', '.join(missing)} of the layer {name!r}")
        try:
            layer.load_state_dict({key: saved[own] for key, own in keys.items()}, strict=False)
        except RuntimeError as error:
            raise CheckpointError(f"{path} does not fit the layer {name!r}: {first_line(error)}") from error
        return layer

    def configure(self, layer: SelfAttention, saved: Mapping[str, Tensor]) -> None:
        """Makes a newly converted layer what the entry and the layer's tensors say.

        Args:
            layer: The layer.
            saved: The weights that it will get, by name.

        Raises:
            CheckpointError: The layer is not what the entry says, or its tensors have other shapes.
            EngineError: There is no such engine.
        """
        name = self.names[0]
        if layer.spec != self.spec:
            raise CheckpointError(f"layer {name} is {self.spec}, in the architecture {layer.spec}")
        if self.kind != (made := _kind(layer)):
            own, theirs = (kind or "PyTorch's own class" for kind in (self.kind, made))
            raise CheckpointError(f"layer {name} was of {own}, in the architecture it is of {theirs}")
        layer.engine, layer.alpha_follows_dtype = self.engine, self.alpha_follows_dtype
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


def state_key(layer: str, own: str) -> str:
    """The key in a network's state dict of what a layer calls its own; a root layer has no name."""
    return f"{layer}.{own}" if layer else own


def attention_named(model: nn.Module, name: str) -> SelfAttention:
    """The attention layer of a model that has this name.

    Raises:
        CheckpointError: It is something else.
    """
    layer = model.get_submodule(name)
    if not isinstance(layer, SelfAttention):
        raise CheckpointError(f"{name} is not a self-attention layer; got {type(layer).__name__}")
    return layer


def _kind(layer: SelfAttention) -> str | None:
    """The convolution's class where it was not a plain one of PyTorch's, or None."""
    if isinstance(layer, OfSubclass):
        return layer.origin.name
    spec = layer.spec
    return f"parametrised {CONVOLUTIONS[spec.axes, spec.transposed].__name__}" if is_computed(layer) else None


def holds_attention(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict has an attention layer in it."""
    names = [key.removesuffix("centers").removesuffix(".") for key in state if key.rpartition(".")[2] == "centers"]
    return any(_is_attention(state, name) for name in names)


def expected_keys(cnn: nn.Module) -> Expected:
    """The keys that the state dict of a CNN has, with their shapes, and those that it can have once it is converted."""
    names = [name for group in names_by_module(cnn, is_convolution) for name in group]
    own = {key: value.shape for key, value in cnn.state_dict().items() if isinstance(value, Tensor)}
    return {**{state_key(name, key): None for name in names for key in ATTENTION_KEYS}, **own}


def layer_entries(cnn: nn.Module, state: Mapping[str, Tensor]) -> tuple[LayerEntry, ...]:
    """The convolutions of a CNN that are attention in the state dict of the converted CNN."""
    groups = names_by_module(cnn, lambda module: isinstance(module, Convolution))
    found = ((names, cnn.get_submodule(names[0])) for names in groups if _is_attention(state, names[0]))
    return tuple(LayerEntry(names, geometry(conv)) for names, conv in found if isinstance(conv, Convolution))


def without_attention(state: Mapping[str, Tensor], entries: Iterable[LayerEntry]) -> dict[str, Tensor]:
    """The tensors of a converted network that its CNN has, too."""
    extra = {state_key(name, own) for entry in entries for name in entry.names for own in ATTENTION_KEYS}
    return {key: value for key, value in state.items() if key not in extra}


def _is_attention(state: Mapping[str, Tensor], name: str) -> bool:
    """Whether a layer has what every attention layer has, and no module of torch's."""
    strengths = any(state_key(name, key) in state for key in ("alpha", "log_alpha"))
    return strengths and all(state_key(name, key) in state for key in ("weight", "centers"))
