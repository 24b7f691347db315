"""Reads the images of a folder: tensors as they are, pictures as numbers from -1 to 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.spec import Size
from conv2attn.proofs.images import SUFFIXES, ImageSizesError, read_picture


def read_images(folder: Path, *, channels: int, size: Size | None = None) -> Tensor:
    """All images of a folder, in the order of their names.

    Args:
        folder: Holds ``.npy`` or ``.pt`` files with a tensor [channels, rows, columns] or a batch of them, preprocessed
            as the network wants it, and pictures (PNG, JPEG, ...); other files are left alone.
        channels: Of the network's input: pictures become grey (1), RGB (3) or RGBA (4).
        size: Pictures are resized to it; None keeps theirs.

    Returns:
        [count, channels, rows, columns], float32.

    Raises:
        CheckpointError: There is no image, or one cannot be read.
        ImageSizesError: They are not of one size.
    """
    readers: dict[str, Callable[[Path], Tensor]] = {".npy": _read_array, ".pt": _read_tensor}
    readers |= dict.fromkeys(SUFFIXES, lambda path: read_picture(path, channels, size))
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in readers)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}") from error
    if not files:
        raise CheckpointError(f"{folder} holds no image; files end in {', '.join(sorted(readers))}")
    images = [_batch(path, readers[path.suffix.lower()](path), channels) for path in files]
    odd = next(
        (path for path, image in zip(files, images, strict=True) if image.shape[1:] != images[0].shape[1:]), None
    )
    if odd is not None:
        raise ImageSizesError(f"{odd} and {files[0]} are of different sizes")
    return torch.cat(images)


def _batch(path: Path, image: Tensor, channels: int) -> Tensor:
    batch = image.unsqueeze(0) if image.ndim == 3 else image
    if batch.ndim != 4 or batch.shape[1] != channels:
        shape = f"[{channels}, rows, columns], alone or in a batch"
        raise CheckpointError(f"{path} holds a tensor {list(image.shape)}; the network takes {shape}")
    return batch.float()


def _read_array(path: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is no array of numbers") from error


def _read_tensor(path: Path) -> Tensor:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many things
        raise CheckpointError(f"{path} is no tensor") from error
    if not isinstance(loaded, Tensor):
        raise CheckpointError(f"{path} holds a {type(loaded).__name__}, not a tensor")
    return loaded
