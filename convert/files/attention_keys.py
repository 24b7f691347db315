"""Keys of a converted network's state dict: which are the CNN's, and which make its layers attention.

A converted layer keeps the keys of its convolution, ``weight`` and ``bias``, and adds ``alpha``, ``centers`` and those
of content terms and learned tables. So a state dict tells which layers are attention, but not their geometry: that is
the architecture's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from ..attention.reader import geometry
from ..engines import AUTO
from ..heads.axis_scores import AXES
from ..model.convert import is_convolution
from ..names import names_by_module
from ..spec import Convolution
from .entry import LayerEntry, state_key
from .keys import Expected

ATTENTION_KEYS = (
    "alpha",
    "centers",
    *(f"content.{name}" for name in ("query_weight", "key_weight", "position_weight", "key_bias", "gate")),
    *(f"axis_scores.{axis}" for axis in AXES),
)
"""Keys that the state dict of an attention layer can have beside its convolution's."""

_SIGNS = ("weight", "alpha", "centers")  # what every attention layer has, and no module of torch's


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
    return all(state_key(name, sign) in state for sign in _SIGNS)


def _entry(names: tuple[str, ...], conv: Convolution, state: Mapping[str, Tensor]) -> LayerEntry:
    """A layer as the state dict describes it; shapes that contradict it are found when the layer is made."""
    spec, keys = geometry(conv), state.get(state_key(names[0], "content.key_weight"))
    key_dim = keys.shape[1] if keys is not None and keys.ndim == 3 else None
    tables = [state.get(state_key(names[0], f"axis_scores.{axis}")) for axis in AXES[-spec.axes :]]
    found = [table for table in tables if table is not None and table.ndim == 2]
    offsets = tuple(table.shape[1] for table in found) if len(found) == len(tables) else None
    return LayerEntry(names, spec, AUTO, key_dim, offsets, content_gated=state_key(names[0], "content.gate") in state)
