"""Loads a converted model for use in Python."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ..arguments import as_path
from ..errors import ArchitectureError, ArchitectureNeededError
from .architecture import Architecture
from .config import LAYERS_CONTENT, read_config
from .network import open_network


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
    folder = as_path(folder, "folder")
    if architecture is None:
        _check_needs_none(folder)
    return open_network(folder, architecture=architecture, converted=True, device=None).model


def _check_needs_none(folder: Path) -> None:
    """Refuses a folder of a network whose architecture only the user may name."""
    _, config = read_config(folder)
    if config.content == LAYERS_CONTENT or config.own_architecture is not None:
        return
    if config.architecture is None:
        raise ArchitectureNeededError("the folder names no architecture, and holds a network that needs one")
    raise ArchitectureNeededError(
        f"the folder names the architecture {config.architecture.spec}, but building it would run code that a "
        "file chose; it must be given"
    )
