"""The door to every network: from a file or a folder, and an architecture where one is needed, to a network.

weights and the geometry of their convolutions   the convolutions alone, as a ``Layers`` tree
weights and an architecture                      the CNN
a folder that a conversion wrote                 the converted network; without an architecture, its layers alone
the state dict of a converted network            the converted network, by its CNN's architecture
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..attention.layer import SelfAttention
from ..errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    OptionError,
    UnsupportedLayerError,
    first_line,
)
from ..model.convert import convert_model, restore_model
from .architecture import Architecture
from .checkpoint import Checkpoint, Progress, fit_keys, load_into, non_finite_keys, read_checkpoint
from .config import LayerEntry, attention_named, is_converted
from .folder import read_folder
from .layers import Layers, layer_tree
from .state import holds_attention, keys_when_converted, layer_entries, only_layers, under_middle_tap, without_attention
from .writing.ownership import CONFIG

LARGE = 2**28  # bytes of weights from which on they are not copied
_LISTED = 20


@dataclass(frozen=True)
class Network:
    """A network with the weights of a file or a folder.

    Attributes:
        model: In eval mode: a CNN, or a converted network. Without an architecture, a ``Layers`` tree of the
            convolutions, or of the attention layers, alone. With a large checkpoint, its weights lie in the mapped
            file, and what is not in the checkpoint is on the meta device.
        checkpoint: Where the weights came from.
        architecture: How the network was built, or None for layers alone and for a network that was given.
        non_finite: Names of tensors with a NaN or an infinity.
        notes: What the user should know of the weights of layers that the checkpoint describes, by their names.
        originals: What the checkpoint calls layers, by the names that they have here, where these differ.
    """

    model: nn.Module
    checkpoint: Checkpoint
    architecture: Architecture | None
    non_finite: tuple[str, ...]
    notes: Mapping[str, str] = field(default_factory=dict)
    originals: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_converted(self) -> bool:
        """Whether layers of it are attention."""
        return any(isinstance(module, SelfAttention) for module in self.model.modules())

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it was read from, its code among them: none may be lost to what is written of it."""
        code = None if self.architecture is None else self.architecture.file
        return self.checkpoint.files if code is None else (*self.checkpoint.files, code)

    def cnn(self) -> nn.Module:
        """The CNN: the model itself, or what it was converted from, bit for bit. A converted model is changed.

        Raises:
            NotAConvolutionError: Attention layers of it compute what no convolution computes.
        """
        return restore_model(self.model, inplace=True).eval() if self.is_converted else self.model

    def whole(self) -> nn.Module:
        """The model, if it can run as a whole.

        Raises:
            ArchitectureNeededError: It is layers without the network that connects them.
        """
        if isinstance(self.model, Layers):
            raise ArchitectureNeededError(
                f"{self.checkpoint.path} describes its layers, but not how the network connects them, and the whole "
                "network is to run; that takes its architecture"
            )
        return self.model


def open_network(
    path: str | Path,
    *,
    architecture: nn.Module | Architecture | None = None,
    converted: bool = False,
    ema: bool = False,
    device: str | None = "cpu",
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> Network:
    """Opens whatever holds a network.

    Args:
        path: A checkpoint of any kind, of a CNN or of a converted network; a Hugging Face folder; or a folder that a
            conversion wrote.
        architecture: The CNN, of which a copy is used, or how to build it. None takes the layers by the geometry that
            the file or the folder describes; a folder of one of the project's example networks is built from its own
            architecture.
        converted: Refuse what is no folder that a conversion wrote.
        ema: Take the moving average of the weights.
        device: Where to; None leaves a network that is given where it is.
        dtype: Convert floating-point weights to this precision; None keeps that of the architecture, or in which a
            converted network was saved.
        progress: Called with the number of bytes of a checkpoint that were read since the last call.

    Raises:
        ArchitectureNeededError: No architecture is given, and the checkpoint describes no geometry.
        CheckpointError: The file cannot be read or does not fit.
        ArchitectureError: The network cannot be built.
        OptionError: A moving average is asked for of a folder that a conversion wrote.
        ConversionError: There is no such device here, or a dtype is asked for that complex weights do not fit.
    """
    path = Path(path)
    if converted or is_converted(path):
        checkpoint, entries, own = _read_converted(path, ema=ema)
        architecture = architecture or own
    else:
        checkpoint, entries = read_checkpoint(path, ema=ema, progress=progress), ()
    if architecture is None:
        model = _layers(checkpoint, entries)
        described = checkpoint.convolutions.items()
        notes = {name: stored.note for name, stored in described if stored.note}
        originals = {name: stored.original for name, stored in described if stored.original}
    else:
        model, notes, originals = _built(architecture, checkpoint, entries), {}, {}
    if dtype is not None and any(parameter.is_complex() for parameter in model.parameters()):
        raise ConversionError(f"the network has complex weights, whose imaginary parts {dtype} would lose")
    try:
        model = model.to(device=None if device is None else torch.device(device), dtype=dtype).eval()
        non_finite = tuple(non_finite_keys(model.state_dict()))  # here, since the meta device has no values
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConversionError(f"the device {device!r} cannot be used: {first_line(error)}") from error
    recipe = architecture if isinstance(architecture, Architecture) else None
    return Network(model, checkpoint, recipe, non_finite, notes, originals)


def _read_converted(folder: Path, *, ema: bool) -> tuple[Checkpoint, Sequence[LayerEntry], Architecture | None]:
    """The weights in a folder that a conversion wrote, its attention layers, and the architecture that may be built."""
    if ema:
        raise OptionError(f"{folder} is a converted network, which keeps no moving average of its weights")
    config, saved = read_folder(folder)
    checkpoint = replace(saved, path=folder, files=(folder / CONFIG, *saved.files))
    return checkpoint, config.layers, config.own_architecture


def _layers(checkpoint: Checkpoint, entries: Sequence[LayerEntry]) -> nn.Module:
    """The layers alone, as attention if they are known to be, else as convolutions."""
    if entries:
        return _attention_layers(checkpoint, entries)
    if not checkpoint.convolutions or holds_attention(checkpoint.state_dict):
        raise ArchitectureNeededError(_what_is_needed(checkpoint))
    return layer_tree(checkpoint.convolutions, checkpoint.state_dict)


def _attention_layers(checkpoint: Checkpoint, entries: Sequence[LayerEntry]) -> nn.Module:
    stored = {name: entry.stored(name, checkpoint) for entry in entries for name in entry.names}
    tree = _convert_like(layer_tree(stored, checkpoint.state_dict), entries, checkpoint)
    own = replace(checkpoint, state_dict=only_layers(checkpoint.state_dict, entries))
    load_into(tree, own, assign=True)
    return tree


def _what_is_needed(checkpoint: Checkpoint) -> str:
    found = [f"{key} {list(value.shape)}" for key, value in checkpoint.state_dict.items() if value.ndim == 4]
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    listed = ", ".join(found[:_LISTED]) + more if found else "none"
    whose = "attention layers" if holds_attention(checkpoint.state_dict) else "convolutions"
    return (
        f"{checkpoint.path} holds weights, but not the strides and paddings of its {whose} (weights with 4 dimensions: "
        f"{listed}); that takes the architecture of their network"
    )


def _built(architecture: nn.Module | Architecture, checkpoint: Checkpoint, entries: Sequence[LayerEntry]) -> nn.Module:
    """The network with the checkpoint's weights, copied unless they are large."""
    if isinstance(architecture, nn.Module):
        return _loaded(copy.deepcopy(architecture), checkpoint, entries)
    if sum(tensor.nbytes for tensor in checkpoint.state_dict.values()) >= LARGE:
        with suppress(ArchitectureError):  # code that reads the values it draws cannot run without them
            with torch.device("meta"):
                model = architecture.build()
            model = _loaded(model, checkpoint, entries, assign=True)
            if not any(tensor.is_meta for tensor in model.state_dict().values()):
                return model
    return _loaded(architecture.build(), checkpoint, entries)


def _loaded(
    cnn: nn.Module, checkpoint: Checkpoint, entries: Sequence[LayerEntry], *, assign: bool = False
) -> nn.Module:
    """A CNN with the checkpoint's weights, its layers attention where those of the checkpoint are."""
    saved = replace(checkpoint, state_dict=fit_keys(checkpoint.state_dict, keys_when_converted(cnn)))
    if not entries:
        entries = layer_entries(cnn, saved.state_dict)
        saved = replace(saved, state_dict=under_middle_tap(saved.state_dict, entries))
    if not entries:
        load_into(cnn, checkpoint, assign=assign)
        return cnn
    _match_dtypes(cnn, saved.state_dict)
    load_into(cnn, replace(saved, state_dict=without_attention(saved.state_dict, entries)), assign=assign)
    model = _convert_like(cnn, entries, saved)  # after loading: large weights are then shared, not copied
    _match_dtypes(model, saved.state_dict)
    load_into(model, saved, assign=assign)
    return model


def _convert_like(network: nn.Module, entries: Sequence[LayerEntry], saved: Checkpoint) -> nn.Module:
    """Converts the layers of a CNN that were attention when it was saved.

    Args:
        network: The CNN, which is changed; what its weights are does not matter.
        entries: The attention layers.
        saved: The weights that the converted network will get, under the network's names.

    Raises:
        CheckpointError: The network lacks one of the layers, or it is another there.
        EngineError: There is no such engine.
    """
    wanted = {name: entry for entry in entries for name in entry.names}
    try:
        model, report = convert_model(
            network, filter_fn=lambda _, name: name in wanted, inplace=True, skip_unsupported=True
        )
    except UnsupportedLayerError as error:
        raise CheckpointError(f"{saved.path} does not fit the architecture: {error}") from error
    for layer in report.layers:
        wanted[layer.name].configure(attention_named(model, layer.name), saved.state_dict)
    lacking = wanted.keys() - {name for layer in report.layers for name in layer.names}
    if lacking:
        listed = ", ".join(sorted(lacking))
        raise CheckpointError(f"{saved.path} holds attention layers that the architecture lacks: {listed}")
    return model


def _match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
