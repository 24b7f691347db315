"""Loads the shipped networks."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from ..errors import CheckpointError, ConversionError
from .networks import NETWORKS


def load_example(name: str, *, folder: Path | Traversable | None = None) -> nn.Module:
    """Builds an example network and gives it its trained weights.

    Args:
        name: One of `NETWORKS`.
        folder: Where ``<name>.safetensors`` lies; None means those shipped.

    Returns:
        The network in eval mode, from images [batch, 3, height, width] to class scores [batch, 8].

    Raises:
        ConversionError: There is no such network.
        CheckpointError: The file cannot be read, or does not fit the network.
    """
    if name not in NETWORKS:
        raise ConversionError(f"there is no example network {name!r}; there are {', '.join(NETWORKS)}")
    source = files("conv2attn.convert.examples") / "weights" if folder is None else folder
    network = NETWORKS[name]()
    try:
        network.load_state_dict(load((source / f"{name}.safetensors").read_bytes()), strict=True)
    except OSError as error:
        raise CheckpointError(f"cannot read {name}.safetensors in {source}: {error.strerror}") from error
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{name}.safetensors in {source} does not fit the network: {reason}") from error
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, batch_size: int = 250) -> float:
    """Counts how often the highest score is the right class.

    Args:
        network: From images to class scores [batch, classes]; its train or eval mode is left alone.
        images: [count, channels, height, width].
        labels: [count], class indices.
        batch_size: Number of images in a batch.

    Returns:
        The share of images that are classified correctly, 0 to 1.
    """
    batches = zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True)
    right = sum(int((network(batch).argmax(1) == truth).sum()) for batch, truth in batches)
    return right / len(labels)
