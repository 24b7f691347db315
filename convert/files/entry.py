"""Attention layers in files: the record of one in a folder, and their keys in a converted network's state dict.

A converted layer keeps the keys of its convolution, ``weight`` and ``bias``, and adds ``alpha``, ``centers`` and those
of content terms and learned tables. So a state dict tells which layers are attention, but not their geometry: that is
the record's, or the architecture's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
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
from ..errors import CheckpointError, first_line
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

_SIGNS = ("weight", "centers")  # what every attention layer has, and no module of torch's


@dataclass(frozen=True)
class LayerEntry:
    """One attention layer.

    Attributes:
        names: Fully qualified names of the layer.
        spec: Its geometry.
        engine: How it computes.
        content_key_dim: Dimension of its content terms, or None if it has none.
        axis_offsets: Offsets of its learned score tables along each axis, or None if its scores are quadratic.
        alpha_follows_dtype: As ``SelfAttention.alpha_follows_dtype``.
        kind: The convolution's class where it is not a plain one of PyTorch's, so that only the architecture makes it.
        content_gated: Whether its content terms are behind a gate.
        trains_positions: As ``SelfAttention.trains_positions``.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    engine: str
    content_key_dim: int | None = None
    axis_offsets: tuple[int, ...] | None = None
    alpha_follows_dtype: bool = True
    kind: str | None = None
    content_gated: bool = False
    trains_positions: bool = False

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention) -> LayerEntry:
        """Describes a layer."""
        content = layer.content
        return cls(
            names,
            layer.spec,
            layer.engine,
            None if content is None else content.key_weight.shape[1],
            None if layer.axis_scores is None else tuple(table.shape[1] for table in layer.axis_scores.tables),
            layer.alpha_follows_dtype,
            _kind(layer),
            content is not None and content.gate is not None,
            layer.trains_positions,
        )

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data, which ``plain.from_plain`` reads."""
        return asdict(self) | {"spec": self.spec.to_json()}

    def described(self, name: str, state: Mapping[str, Tensor]) -> DescribedConvolution:
        """The convolution that the layer was made from, in a state dict, under one of the layer's names."""
        bias = state_key(name, "bias")
        return DescribedConvolution(state_key(name, "weight"), bias if bias in state else None, self.spec)

    def convolution(self, state: Mapping[str, Tensor]) -> Convolution:
        """The convolution that the layer was made from; of a class that only the architecture makes, with zeros."""
        name = self.names[0]
        if self.kind is None:
            return layer_module(name, self.described(name, state), state)
        own = [value.dtype for key, value in state.items() if key.startswith(state_key(name, "parametrizations."))]
        zero = torch.zeros((), dtype=own[0] if own else torch.float32)
        bias = zero.expand(self.spec.out_channels) if self.spec.bias else None
        return convolution(self.spec, zero.expand(self.spec.weight_shape), bias)

    def attention(self, conv: Convolution, saved: Mapping[str, Tensor], path: Path) -> SelfAttention:
        """The layer with the values that were saved, over the parameters of its convolution.

        Raises:
            CheckpointError: The values are missing, or do not fit the entry.
        """
        layer, name = attention_with(conv), self.names[0]
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
        """Makes a newly converted layer what the entry says.

        Args:
            layer: The layer.
            saved: The weights that it will get, by name.

        Raises:
            CheckpointError: The layer, or the weights of its content terms, are not what the entry says.
            EngineError: There is no such engine.
        """
        name = self.names[0]
        if layer.spec != self.spec:
            raise CheckpointError(f"layer {name} is {self.spec}, in the architecture {layer.spec}")
        made = _kind(layer)
        if self.kind != made:
            own, theirs = (kind or "PyTorch's own class" for kind in (self.kind, made))
            raise CheckpointError(f"layer {name} was of {own}, in the architecture it is of {theirs}")
        layer.engine = self.engine
        layer.alpha_follows_dtype = self.alpha_follows_dtype
        if self.trains_positions:
            layer.train_positions()
        if self.content_key_dim is not None:
            key_weight = saved.get(state_key(name, "content.key_weight"))
            shape = (layer.num_heads, self.content_key_dim, layer.in_channels)
            if key_weight is None or key_weight.shape != shape:
                raise CheckpointError(f"layer {name} has no content terms of dimension {self.content_key_dim}")
            layer.add_content(self.content_key_dim, gated=self.content_gated)
        if self.axis_offsets is not None:
            tables = [saved.get(state_key(name, f"axis_scores.{axis}")) for axis in AXES[-layer.spec.axes :]]
            found = [table for table in tables if table is not None and table.ndim]
            if len(found) < len(tables) or [table.shape[-1] for table in found] != list(self.axis_offsets):
                raise CheckpointError(f"layer {name} has no score tables of {self.axis_offsets} offsets")
            layer.set_axis_scores(*found)


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
    """The convolutions of a CNN that are attention in a state dict.

    Args:
        cnn: The CNN.
        state: The state dict of the converted CNN, under the CNN's names.
    """
    groups = names_by_module(cnn, lambda module: isinstance(module, Convolution))
    found = ((names, cnn.get_submodule(names[0])) for names in groups if _is_attention(state, names[0]))
    return tuple(_entry(names, conv, state) for names, conv in found if isinstance(conv, Convolution))


def without_attention(state: Mapping[str, Tensor], entries: Iterable[LayerEntry]) -> dict[str, Tensor]:
    """The tensors of a converted network that its CNN has, too."""
    extra = {state_key(name, own) for entry in entries for name in entry.names for own in ATTENTION_KEYS}
    return {key: value for key, value in state.items() if key not in extra}


def only_layers(state: Mapping[str, Tensor], entries: Iterable[LayerEntry]) -> dict[str, Tensor]:
    """The tensors of a converted network that its attention layers have."""
    keys = ("weight", "bias", *ATTENTION_KEYS)
    own = {state_key(name, key) for entry in entries for name in entry.names for key in keys}
    return {key: value for key, value in state.items() if key in own}


def _is_attention(state: Mapping[str, Tensor], name: str) -> bool:
    strengths = any(state_key(name, key) in state for key in ("alpha", "log_alpha"))
    return strengths and all(state_key(name, sign) in state for sign in _SIGNS)


def _entry(names: tuple[str, ...], conv: Convolution, state: Mapping[str, Tensor]) -> LayerEntry:
    """A layer as the state dict describes it; shapes that contradict it are found when the layer is made."""
    spec, keys = geometry(conv), state.get(state_key(names[0], "content.key_weight"))
    key_dim = keys.shape[1] if keys is not None and keys.ndim == 3 else None
    tables = [state.get(state_key(names[0], f"axis_scores.{axis}")) for axis in AXES[-spec.axes :]]
    found = [table for table in tables if table is not None and table.ndim == 2]
    offsets = tuple(table.shape[1] for table in found) if len(found) == len(tables) else None
    gated, trains = (state_key(names[0], key) in state for key in ("content.gate", "log_alpha"))
    return LayerEntry(names, spec, AUTO, key_dim, offsets, content_gated=gated, trains_positions=trains)
