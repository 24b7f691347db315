"""Reads safetensors, which hold tensors and texts, and nothing else."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import CheckpointError

_FORMATS = ("format", "conv2attn")  # names in the metadata that say how a file was written


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, over the mapped file.

    A tensor that is one with another has no numbers of its own: as ``safetensors.torch.save_model`` writes it, its name
    stands in the metadata, with the name of the other.

    Raises:
        CheckpointError: The file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete: {error}") from error
    others = {name: kept for name, kept in metadata.items() if name not in _FORMATS and name not in tensors}
    return tensors | {name: tensors[kept] for name, kept in others.items() if kept in tensors}
