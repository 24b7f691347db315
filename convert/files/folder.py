"""Reads the folder of a converted model, of this version or an older one: its description and its weights, no code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..attention.supported import SUPPORTED_DTYPES
from ..errors import CheckpointError
from ..spec import ConvSpec
from .checkpoint import Checkpoint, read_checkpoint
from .config import Config, read_config
from .migration import query_under_middle_tap
from .readers.common.beside import path_in
from .readers.common.limits import Budget
from .writing.ownership import CONFIG, FORMAT, WEIGHTS


def read_folder(folder: Path) -> tuple[Config, Checkpoint]:
    """Reads the description and the weights of a converted model.

    Raises:
        CheckpointError: The folder is not a converted model, is damaged, or was written by a later version.
    """
    budget = Budget()  # of both files together
    version, config = read_config(folder, budget)
    checkpoint = read_checkpoint(path_in(folder, WEIGHTS), budget=budget)
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
