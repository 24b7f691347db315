"""CIFAR-10, from ``cifar-10-python.tar.gz``, packed or unpacked: a pickled dictionary for each batch; no code is run.

An image is 32 x 32 pixels: its red values row by row, then its green, then its blue. (A. Krizhevsky, Learning Multiple
Layers of Features from Tiny Images, 2009.)
"""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...convert.errors import CheckpointError
from .images import ImageData, Split, divided

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")  # the last is the test set
_SHAPE = 3, 32, 32
_SHARE, _SEED = 0.1, 0  # validation images, of those to learn from


def cifar10(path: Path) -> ImageData:
    """CIFAR-10: its test set, and of its other images 90 % to learn from and 10 % to choose.

    Args:
        path: The archive, or a folder with what it holds, or its parent.

    Raises:
        CheckpointError: The file or folder is missing, is something else, lacks a batch, or holds a damaged one.
    """
    try:
        found = _from_folder(path) if path.is_dir() else _from_archive(path)
    except (OSError, EOFError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or "it is no archive of tar, or is damaged"
        raise CheckpointError(f"{path} cannot be read: {reason}") from error
    if lacking := [name for name in BATCHES if name not in found]:
        raise CheckpointError(f"{path} is not CIFAR-10 in its Python version: it lacks {', '.join(lacking)}")
    batches = [_split(f"{name} in {path}", found[name]) for name in BATCHES]
    known = Split(torch.cat([one.images for one in batches[:-1]]), torch.cat([one.labels for one in batches[:-1]]))
    validation, train = divided(known, shares=(_SHARE,), seed=_SEED)
    return ImageData("cifar10", CLASSES, train, validation, batches[-1], flips=True)


def _from_folder(path: Path) -> dict[str, bytes]:
    files = [file for pattern in ("*_batch*", "cifar-10-batches-*/*_batch*") for file in path.glob(pattern)]
    return {file.name: file.read_bytes() for file in files if file.is_file()}


def _from_archive(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        entries = [entry for entry in archive if entry.isfile() and "_batch" in entry.name]
        found = {Path(entry.name).name: archive.extractfile(entry) for entry in entries}
        return {name: stream.read() for name, stream in found.items() if stream is not None}


def _split(name: str, content: bytes) -> Split:
    try:
        images, labels = _unpickled(content)
    except Exception as error:  # a damaged pickle raises anything
        raise CheckpointError(f"{name} is not a batch of CIFAR-10, or is cut short: {error}") from error
    if not 0 < len(images) == len(labels) or not bool(((labels >= 0) & (labels < len(CLASSES))).all()):
        raise CheckpointError(f"{name} holds {len(images)} images and {len(labels)} labels, which must be 0 to 9")
    return Split(images.view(-1, *_SHAPE), labels)


def _unpickled(content: bytes) -> tuple[Tensor, Tensor]:
    batch = _Arrays(io.BytesIO(content), encoding="latin1").load()
    images = torch.from_numpy(np.ascontiguousarray(batch["data"], dtype=np.uint8))
    return images, torch.tensor(batch["labels"], dtype=torch.int64)


_KNOWN = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np.ones(1).__reduce__()[0] for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _Arrays(pickle.Unpickler):
    """Reads NumPy's arrays and plain data, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """The function or class of a name."""
        if (module, name) not in _KNOWN:
            raise CheckpointError(f"it asks for {module}.{name}")
        return _KNOWN[module, name]
