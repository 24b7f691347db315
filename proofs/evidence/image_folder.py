"""The images of a folder in batches: tensors as they are, pictures as a network takes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...convert.errors import CheckpointError
from ...convert.files.readers import read_contents
from ...learn.data.folder import find_places
from ...learn.data.pictures import SUFFIXES, ImageSizesError, check_plain_file

_TENSORS = (".npy", ".pt")
_SHOWN = ("test", "validation", "train", "")  # the first of these parts that a folder has


class FolderImages(Sequence[Tensor]):
    """Batches of the images of a folder, each read when it is asked for.

    Args:
        folder: Holds ``.npy`` or ``.pt`` files with a tensor [channels, rows, columns] or a batch of them, preprocessed
            as the network wants it, and pictures (PNG, JPEG, ...), itself, in a folder for each class, or in such
            folders for train, val and test, of which the last part is taken; other files are left alone.
        channels: Channels of the network's input.
        read: Reads a picture as [channels, rows, columns], float32.
        batch_size: Images in a batch.

    Attributes:
        labels: Class indices, [count], or None where there are no classes.
        number: Number of images.

    Raises:
        CheckpointError: There is no image, or one cannot be read.
        ImageSizesError: They are not of one size.
    """

    def __init__(self, folder: Path, channels: int, read: Callable[[Path], Tensor], *, batch_size: int) -> None:
        self._channels, self._picture, self._batch_size = channels, read, batch_size
        endings = (*_TENSORS, *SUFFIXES)
        parts = find_places(folder, endings)
        places = parts[next(part for part in _SHOWN if part in parts)]
        if not places.files:
            raise CheckpointError(f"{folder} holds no image; files end in {', '.join(sorted(endings))}")
        counts = [1 if path.suffix.lower() in SUFFIXES else len(self._read(path)) for path in places.files]
        self._images = [(path, place) for path, n in zip(places.files, counts, strict=True) for place in range(n)]
        self.shape, self.number = self._read(places.files[0]).shape[1:], len(self._images)
        own = None if places.labels is None else torch.tensor(places.labels)
        self.labels = None if own is None else own.repeat_interleave(torch.tensor(counts))

    def __len__(self) -> int:
        return -(-self.number // self._batch_size)

    def __getitem__(self, index: Any) -> Any:
        """A batch, [count, channels, rows, columns]."""
        chosen = self._images[index * self._batch_size : (index + 1) * self._batch_size]
        if not chosen:
            raise IndexError(index)
        return torch.cat([self._image(path, place) for path, place in chosen])

    def _image(self, path: Path, place: int) -> Tensor:
        image = self._read(path)[place : place + 1].float()
        if image.shape[1:] != self.shape:
            raise ImageSizesError(f"{path} and {self._images[0][0]} are of different sizes")
        return image

    def _read(self, path: Path) -> Tensor:
        """The images of a file, [count, channels, rows, columns]; those of an array or tensor over the mapped file."""
        check_plain_file(path)
        channels, readers = self._channels, {".npy": _read_array, ".pt": _read_tensor}
        image = readers.get(path.suffix.lower(), self._picture)(path)
        batch = image.unsqueeze(0) if image.ndim == 3 else image
        if batch.ndim != 4 or batch.shape[1] != channels:
            shape = f"[{channels}, rows, columns], alone or in a batch"
            raise CheckpointError(f"{path} holds a tensor {list(image.shape)}; the network takes {shape}")
        if image.is_complex() or not image.numel():
            raise CheckpointError(f"{path} holds {'complex numbers' if image.numel() else 'no numbers'}")
        return batch


def _read_array(path: Path) -> Tensor:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about headers that Python 2 wrote
            return torch.from_numpy(np.lib.format.open_memmap(path, mode="c"))
    except Exception as error:  # a damaged header makes numpy raise many things
        raise CheckpointError(f"{path} is not an array of numbers") from error


def _read_tensor(path: Path) -> Tensor:
    """The tensor of a file, by the reader of checkpoints, which runs nothing."""
    found = read_contents(path).value
    if not isinstance(found, Tensor) or found.layout is not torch.strided:
        raise CheckpointError(f"{path} holds something else, not a dense tensor")
    return found.detach()
