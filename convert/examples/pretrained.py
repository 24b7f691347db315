"""Loads the shipped networks, after checking that each file is the one that was trained."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from ..errors import CheckpointError, ConversionError
from .networks import NETWORKS

SUMS_NAME = "SHA256SUMS"
"""The file beside the weights that lists their checksums, in the format of sha256sum."""


def load_example(name: str, *, folder: Path | Traversable | None = None) -> nn.Module:
    """Builds an example network and gives it its trained weights.

    Args:
        name: One of `NETWORKS`.
        folder: Where ``<name>.safetensors`` and ``SHA256SUMS`` lie; None means those shipped.

    Returns:
        The network in eval mode, from images [batch, 3, height, width] to class scores [batch, 8].

    Raises:
        ConversionError: There is no such network.
        CheckpointError: A file is missing, is not the one that was trained, or does not fit the network.
    """
    if name not in NETWORKS:
        raise ConversionError(f"there is no example network {name!r}; there are {', '.join(NETWORKS)}")
    source = files("conv2attn.convert.examples") / "weights" if folder is None else folder
    content = _read_verified(source, f"{name}.safetensors")
    network = NETWORKS[name]()
    try:
        network.load_state_dict(load(content), strict=True)
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


def _read_verified(folder: Path | Traversable, file_name: str) -> bytes:
    """Reads a file once and returns its bytes only if their checksum is the listed one."""
    content = _read(folder, file_name)
    got, wanted = hashlib.sha256(content).hexdigest(), _read_sums(folder).get(file_name)
    if wanted is None:
        raise CheckpointError(f"{SUMS_NAME} in {folder} lists no checksum for {file_name}")
    if got != wanted:
        raise CheckpointError(
            f"{file_name} in {folder} is not the file that was trained: its SHA-256 is {got}, {SUMS_NAME} says {wanted}"
        )
    return content


def _read_sums(folder: Path | Traversable) -> dict[str, str]:
    """Reads the checksums by file name; each line is ``<hex digits>  <file name>``."""
    lines = _read(folder, SUMS_NAME).decode("utf-8", errors="replace").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines)
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _read(folder: Path | Traversable, file_name: str) -> bytes:
    try:
        return (folder / file_name).read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {file_name} in {folder}: {error.strerror}") from error
