"""Reads the images of a folder: tensors as they are, pictures as numbers from -1 to 1 or as a network takes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...convert.errors import CheckpointError
from ...convert.files.readers import read_contents
from ...convert.preprocessing import Normalization
from ...convert.size import Size
from ...learn.data.pictures import SUFFIXES, ImageSizesError, check_plain_file, read_picture

MOST_NUMBERS = 2**29  # of all images together: 2 GB


def read_images(
    folder: Path, *, channels: int, size: Size | None = None, normalization: Normalization | None = None
) -> Tensor:
    """All images of a folder, in the order of their names.

    Args:
        folder: Holds ``.npy`` or ``.pt`` files with a tensor [channels, rows, columns] or a batch of them, preprocessed
            as the network wants it, and pictures (PNG, JPEG, ...); other files are left alone.
        channels: Of the network's input: pictures become grey (1), RGB (3) or RGBA (4).
        size: Pictures are resized to it; None keeps theirs.
        normalization: Applied to pictures; None means values from -1 to 1.

    Returns:
        [count, channels, rows, columns], float32.

    Raises:
        CheckpointError: There is no image, one cannot be read, or they have more than ``MOST_NUMBERS``.
        ImageSizesError: They are not of one size.
    """
    readers: dict[str, Callable[[Path], Tensor]] = {".npy": _read_array, ".pt": _read_tensor}
    normalized = normalization or (lambda picture: picture)
    readers |= dict.fromkeys(SUFFIXES, lambda path: normalized(read_picture(path, channels, size)))
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in readers)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}") from error
    if not files:
        raise CheckpointError(f"{folder} holds no image; files end in {', '.join(sorted(readers))}")

    def batch(path: Path) -> Tensor:
        check_plain_file(path)
        return _batch(path, readers[path.suffix.lower()](path), channels)

    shape = batch(files[0]).shape[1:]
    count = sum(1 if path.suffix.lower() in SUFFIXES else len(batch(path)) for path in files)  # arrays are only mapped
    if count * shape.numel() > MOST_NUMBERS:
        raise CheckpointError(f"the images in {folder} have more than {MOST_NUMBERS:,} numbers; take fewer")
    found = torch.empty((count, *shape), device="cpu", dtype=torch.float32)
    place = 0
    for path in files:  # one after the other, since a map of a file keeps it open
        images = batch(path)
        if images.shape[1:] != shape:
            raise ImageSizesError(f"{path} and {files[0]} are of different sizes")
        if place + len(images) > count:
            raise CheckpointError(f"{path} changed while it was read")
        found[place : place + len(images)] = images
        place += len(images)
    return found[:place]


def _batch(path: Path, image: Tensor, channels: int) -> Tensor:
    batch = image.unsqueeze(0) if image.ndim == 3 else image
    if batch.ndim != 4 or batch.shape[1] != channels:
        shape = f"[{channels}, rows, columns], alone or in a batch"
        raise CheckpointError(f"{path} holds a tensor {list(image.shape)}; the network takes {shape}")
    if image.is_complex() or not image.numel():
        raise CheckpointError(f"{path} holds {'complex numbers' if image.numel() else 'no numbers'}")
    return batch


def _read_array(path: Path) -> Tensor:
    """An array over the mapped file, whose header is compared with the file's size."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            return torch.from_numpy(np.lib.format.open_memmap(path, mode="c"))
    except Exception as error:  # a damaged header makes numpy raise many things
        raise CheckpointError(f"{path} is not an array of numbers") from error


def _read_tensor(path: Path) -> Tensor:
    """A tensor over the mapped file, by the reader of checkpoints, which runs nothing."""
    found = read_contents(path).value
    if not isinstance(found, Tensor):
        raise CheckpointError(f"{path} holds something else, not a tensor")
    if found.layout is not torch.strided or found.is_nested or found.is_quantized or found.is_meta:
        raise CheckpointError(f"{path} holds a tensor that is not dense and plain")
    return found.detach()
