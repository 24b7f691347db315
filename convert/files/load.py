"""Reads the folder of a converted model, of this version or an older one; nothing in it is code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from ..arguments import as_path
from ..attention.supported import SUPPORTED_DTYPES
from ..errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    UnsupportedLayerError,
)
from ..model.convert import convert_model
from ..spec import ConvSpec
from .architecture import Architecture
from .checkpoint import Checkpoint, load_into, read_checkpoint
from .config import LAYERS_CONTENT, Config, LayerEntry, attention_named, read_config
from .layers import layer_tree
from .migration import query_under_middle_tap
from .readers.common.beside import path_in
from .writing.ownership import CONFIG, FORMAT, WEIGHTS


def load_converted(folder: str | Path, *, architecture: nn.Module | Architecture | None = None) -> nn.Module:
    """Reads a converted model.

    Args:
        folder: What ``save_converted`` wrote.
        architecture: The CNN's architecture: a new network, or how to build one. The folder may name one, but
            building it runs code, so it is only built from there for the project's own example networks. A folder
            of layers alone needs none.

    Returns:
        The converted model, in eval mode, with the weights, dtypes and engines that were saved. Layers alone are a
        module that holds each under its name, ``get_submodule(name)``.

    Raises:
        CheckpointError: The folder is not a converted model, or does not fit the architecture.
        ArchitectureNeededError: No architecture is given, and the folder needs one.
        ArchitectureError: The architecture cannot be built.
    """
    if not isinstance(architecture, nn.Module | Architecture | None):
        raise ArchitectureError(f"architecture must be a network or an Architecture; got {type(architecture).__name__}")
    config, checkpoint = read_folder(as_path(folder, "folder"))
    network = _network(config, checkpoint, architecture)
    model = convert_like(network, config.layers, checkpoint, inplace=network is not architecture)
    match_dtypes(model, checkpoint.state_dict)
    load_into(model, checkpoint)
    return model.eval()


def convert_like(
    network: nn.Module, entries: Sequence[LayerEntry], saved: Checkpoint, *, inplace: bool = False
) -> nn.Module:
    """Converts the layers of a CNN that were attention when it was saved.

    Args:
        network: The CNN; what its weights are does not matter.
        entries: The attention layers.
        saved: The weights that the converted network will get, under the network's names.
        inplace: Change the network instead of a copy.

    Raises:
        CheckpointError: The network lacks one of the layers, or it is another there.
        EngineError: There is no such engine.
    """
    wanted = {name: entry for entry in entries for name in entry.names}
    try:
        model, report = convert_model(
            network, filter_fn=lambda _, name: name in wanted, inplace=inplace, skip_unsupported=True
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


def read_folder(folder: Path) -> tuple[Config, Checkpoint]:
    """Reads the description and the weights of a converted model.

    Raises:
        CheckpointError: The folder is not a converted model, is damaged, or was written by a later version.
    """
    version, config = read_config(folder)
    checkpoint = read_checkpoint(path_in(folder, WEIGHTS))
    if checkpoint.metadata.get(FORMAT) != str(version):
        raise CheckpointError(f"{folder} is damaged: {CONFIG} and {WEIGHTS} are not of one version")
    checkpoint = _in_order(checkpoint, config)
    _check_dtypes(config, checkpoint)
    if version < 3:
        state = dict(checkpoint.state_dict)
        for entry in config.layers:
            for name in entry.names:
                query_under_middle_tap(name, ConvSpec.from_json(dict(entry.spec)), state)
        checkpoint = replace(checkpoint, state_dict=state)
    return config, checkpoint


def _in_order(checkpoint: Checkpoint, config: Config) -> Checkpoint:
    """The weights in the order of the model's state dict, where the folder tells it."""
    if config.tensors is None:
        return checkpoint
    state = checkpoint.state_dict
    if state.keys() != set(config.tensors):
        raise CheckpointError(f"{checkpoint.path.parent} is damaged: {CONFIG} lists other tensors than {WEIGHTS} holds")
    return replace(checkpoint, state_dict={key: state[key] for key in config.tensors})


def _check_dtypes(config: Config, checkpoint: Checkpoint) -> None:
    """Refuses layers with weights of a dtype that no layer has, or whose bias is of another than their weight."""
    layers = {name for entry in config.layers for name in entry.names}
    for key, tensor in checkpoint.state_dict.items():
        layer, _, part = key.rpartition(".")
        owners = {layer, layer.rpartition(".")[0]} & layers
        if owners and tensor.dtype not in SUPPORTED_DTYPES:
            raise CheckpointError(
                f"{checkpoint.path} has {key[:100]!r} of {tensor.dtype}, which no attention layer has"
            )
        weight = checkpoint.state_dict.get(f"{key.removesuffix('bias')}weight", tensor)
        if part == "bias" and layer in owners and tensor.dtype != weight.dtype:
            raise CheckpointError(f"{checkpoint.path} has {key[:100]!r} of another dtype than the layer's weight")


def _network(config: Config, checkpoint: Checkpoint, given: nn.Module | Architecture | None) -> nn.Module:
    """The CNN to convert: what the caller names, the layers' own tree, or one of the project's examples."""
    if isinstance(given, nn.Module):
        return given
    if given is None and config.content == LAYERS_CONTENT:
        stored = {name: entry.stored(name, checkpoint) for entry in config.layers for name in entry.names}
        return layer_tree(stored, checkpoint.state_dict)
    return _architecture(config, given).build()


def _architecture(config: Config, given: Architecture | None) -> Architecture:
    if given is not None:
        return given
    if config.architecture is None:
        raise ArchitectureNeededError("the folder names no architecture, and holds a network that needs one")
    if config.own_architecture is None:
        raise ArchitectureNeededError(
            f"the folder names the architecture {config.architecture.spec}, but building it would run code that a "
            "file chose; it must be given"
        )
    return config.own_architecture


def match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
