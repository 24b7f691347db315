"""CIFAR-10 in its binary version, ``cifar-10-binary.tar.gz``, packed or unpacked.

A record is a byte for the label and 32 x 32 pixels: their red values row by row, then green, then blue. (A. Krizhevsky,
Learning Multiple Layers of Features from Tiny Images, 2009.)
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import torch

from ...convert.errors import CheckpointError
from .images import ImageData, Split, divided

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")  # the last is the test set
_SHAPE = 3, 32, 32
_RECORD = 1 + 3 * 32 * 32  # bytes
_SHARE, _SEED = 0.1, 0  # validation images, of those to learn from


def cifar10(path: Path) -> ImageData:
    """CIFAR-10, of its archive or a folder with that: the test set, and of the rest 90 % to learn from, 10 % to choose.

    Raises:
        CheckpointError: The file or folder is missing, is something else, lacks a batch, or holds a damaged one.
    """
    try:
        if path.is_dir():
            found = {file.name: file.read_bytes() for file in path.rglob("*_batch*.bin")}
        else:
            with tarfile.open(path) as archive:
                inside = {Path(entry.name).name: archive.extractfile(entry) for entry in archive}
                found = {name: stream.read() for name, stream in inside.items() if stream is not None}
    except (OSError, EOFError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or "it is no archive of tar, or is damaged"
        raise CheckpointError(f"{path} cannot be read: {reason}") from error
    if lacking := [name for name in BATCHES if name not in found]:
        raise CheckpointError(f"{path} is not CIFAR-10 in its binary version: it lacks {', '.join(lacking)}")
    *batches, test = (_split(f"{name} in {path}", found[name]) for name in BATCHES)
    known = Split(torch.cat([batch.images for batch in batches]), torch.cat([batch.labels for batch in batches]))
    validation, train = divided(known, shares=(_SHARE,), seed=_SEED)
    return ImageData("cifar10", CLASSES, train, validation, test, flips=True)


def _split(name: str, content: bytes) -> Split:
    if not content or len(content) % _RECORD:
        raise CheckpointError(f"{name} is cut short: {len(content)} bytes are not records of {_RECORD}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _RECORD)
    labels = records[:, 0].long()
    if labels.max() >= len(CLASSES):
        raise CheckpointError(f"{name} has the label {int(labels.max())}; labels must be 0 to {len(CLASSES) - 1}")
    return Split(records[:, 1:].reshape(-1, *_SHAPE), labels)
