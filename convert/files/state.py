"""The state dict of a converted network: which of its keys are a CNN's, and which make its layers attention.

A converted layer keeps the keys of its convolution, ``weight`` and ``bias``, and adds ``alpha``, ``centers`` and those
of content terms and learned tables. So a state dict tells which layers are attention, but not their geometry: that is
the architecture's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from ..attention.reader import geometry
from ..engines import AUTO
from ..heads.axis_scores import AXES
from ..model.convert import is_convolution
from ..names import names_by_module
from ..spec import Convolution, ConvSpec
from .config import LayerEntry
from .migration import query_under_middle_tap

ATTENTION_KEYS = (
    "alpha",
    "log_alpha",
    "centers",
    *(f"content.{name}" for name in ("query_weight", "key_weight", "position_weight", "key_bias", "gate")),
    *(f"axis_scores.{name}" for name in ("rows", "columns")),
)
"""What the state dict of an attention layer can have beside its convolution's keys."""

_SIGNS = ("weight", "centers")  # what every attention layer has, and no module of torch's


def holds_attention(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict has an attention layer in it."""
    names = [key.removesuffix("centers").removesuffix(".") for key in state if key.rpartition(".")[2] == "centers"]
    return any(_is_attention(state, name) for name in names)


def keys_when_converted(cnn: nn.Module) -> set[str]:
    """The keys that the state dict of a CNN has, and those that it can have once it is converted."""
    names = [name for group in names_by_module(cnn, is_convolution) for name in group]
    return {*cnn.state_dict(), *(_key(name, own) for name in names for own in ATTENTION_KEYS)}


def layer_entries(cnn: nn.Module, state: Mapping[str, Tensor]) -> tuple[LayerEntry, ...]:
    """The convolutions of a CNN that are attention in a state dict.

    Args:
        cnn: The CNN.
        state: The state dict of the converted CNN, under the CNN's names.
    """
    groups = names_by_module(cnn, lambda module: isinstance(module, Convolution))
    found = ((names, cnn.get_submodule(names[0])) for names in groups if _is_attention(state, names[0]))
    return tuple(_entry(names, conv, state) for names, conv in found if isinstance(conv, Convolution))


def under_middle_tap(state: Mapping[str, Tensor], entries: Iterable[LayerEntry]) -> dict[str, Tensor]:
    """The same state dict, read as what it means today if an earlier version wrote it.

    A state dict names no version. Up to version 2 of the folder's form, centres were counted from the first tap instead
    of the middle one: a layer of two axes, as all were, whose centres all are such offsets is taken to be of that time.

    Args:
        state: The state dict of a converted network.
        entries: Its attention layers.

    Raises:
        CheckpointError: Such a layer reads the image at its query, which was another pixel.
    """
    found = dict(state)
    for entry in entries:
        spec = ConvSpec.from_json(dict(entry.spec))
        first = torch.tensor(spec.tap_offsets) + torch.tensor(spec.middle)
        centers = state[_key(entry.names[0], "centers")]
        if spec.axes == 2 and any(spec.middle) and torch.equal(centers, first.to(centers.dtype)):
            for name in entry.names:
                query_under_middle_tap(name, spec, found)
    return found


def without_attention(state: Mapping[str, Tensor], entries: Iterable[LayerEntry]) -> dict[str, Tensor]:
    """The tensors of a converted network that its CNN has, too."""
    extra = {_key(name, own) for entry in entries for name in entry.names for own in ATTENTION_KEYS}
    return {key: value for key, value in state.items() if key not in extra}


def only_layers(state: Mapping[str, Tensor], entries: Iterable[LayerEntry]) -> dict[str, Tensor]:
    """The tensors of a converted network that its attention layers have."""
    own = {_key(name, key) for entry in entries for name in entry.names for key in ("weight", "bias", *ATTENTION_KEYS)}
    return {key: value for key, value in state.items() if key in own}


def _is_attention(state: Mapping[str, Tensor], name: str) -> bool:
    strengths = any(_key(name, sign) in state for sign in ("alpha", "log_alpha"))
    return strengths and all(_key(name, sign) in state for sign in _SIGNS)


def _key(name: str, own: str) -> str:
    return f"{name}.{own}" if name else own


def _entry(names: tuple[str, ...], conv: Convolution, state: Mapping[str, Tensor]) -> LayerEntry:
    """What the state dict tells of a layer; shapes that contradict it are found when the layer is made."""
    spec, keys = geometry(conv), state.get(_key(names[0], "content.key_weight"))
    key_dim = keys.shape[1] if keys is not None and keys.ndim == 3 else None
    tables = [state.get(_key(names[0], f"axis_scores.{axis}")) for axis in AXES[-spec.axes :]]
    found = [table for table in tables if table is not None and table.ndim == 2]
    offsets = tuple(table.shape[1] for table in found) if len(found) == len(tables) else None
    gated = _key(names[0], "content.gate") in state
    trains = _key(names[0], "log_alpha") in state
    return LayerEntry(names, spec.to_json(), AUTO, key_dim, offsets, content_gated=gated, trains_positions=trains)
