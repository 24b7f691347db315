"""The images of a folder, a batch at a time: tensors as they are, pictures from -1 to 1 or as a network takes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...convert.errors import CheckpointError
from ...convert.files.readers import read_contents
from ...convert.preprocessing import Normalization, Preprocessing
from ...convert.size import Size
from ...learn.data.pictures import SUFFIXES, ImageSizesError, check_plain_file, read_picture, read_prepared
from ...learn.data.places import find_places

MOST_NUMBERS = 2**29  # of the images of a batch together: 2 GB
_TENSORS = (".npy", ".pt")
_SHOWN = ("test", "validation", "train", "")  # the first of these parts that a folder has


@dataclass(frozen=True)
class Preparation:
    """How the pictures of a folder become what a network takes.

    Attributes:
        channels: Of the network's input: pictures become grey (1), RGB (3) or RGBA (4).
        size: Pictures are scaled to it; None keeps theirs, or does as the preprocessing says.
        normalization: Applied to pictures; None means values from -1 to 1.
        preprocessing: What the network was trained on, where that is known; normalization and size come before it.
    """

    channels: int
    size: Size | None = None
    normalization: Normalization | None = None
    preprocessing: Preprocessing | None = None

    def read(self, path: Path) -> Tensor:
        """A picture, [channels, rows, columns], float32."""
        if self.preprocessing is None or self.normalization is not None:
            picture = read_picture(path, self.channels, self.size)
            return picture if self.normalization is None else self.normalization(picture)
        return read_prepared(path, self.preprocessing, self.size)


class FolderImages(Sequence[Tensor]):
    """Batches of the images of a folder, each read when it is asked for.

    Args:
        folder: Holds ``.npy`` or ``.pt`` files with a tensor [channels, rows, columns] or a batch of them, preprocessed
            as the network wants it, and pictures (PNG, JPEG, ...), itself, in a folder for each class, or in such
            folders for train, val and test, of which the last part is taken; other files are left alone.
        preparation: How pictures are read.
        batch_size: Images in a batch.

    Attributes:
        labels: Class indices, [count], or None where there are no classes.
        classes: Names of the classes.

    Raises:
        CheckpointError: There is no image, or one cannot be read.
        ImageSizesError: They are not of one size.
    """

    def __init__(self, folder: Path, preparation: Preparation, *, batch_size: int) -> None:
        self._preparation, self._batch_size = preparation, batch_size
        endings = (*_TENSORS, *SUFFIXES)
        parts = find_places(folder, endings)
        places = parts[next(part for part in _SHOWN if part in parts)]
        if not places.files:
            raise CheckpointError(f"{folder} holds no image; files end in {', '.join(sorted(endings))}")
        counts = [1 if path.suffix.lower() in SUFFIXES else len(self._read(path)) for path in places.files]
        self._images = [(path, place) for path, n in zip(places.files, counts, strict=True) for place in range(n)]
        self.shape = self._read(places.files[0]).shape[1:]
        if self.shape.numel() * batch_size > MOST_NUMBERS:
            raise CheckpointError(
                f"{batch_size} images of {folder} have more than {MOST_NUMBERS:,} numbers; scale them"
            )
        own = None if places.labels is None else zip(places.labels, counts, strict=True)
        self.labels = None if own is None else torch.tensor([label for label, n in own for _ in range(n)])
        self.classes = places.classes

    @property
    def number(self) -> int:
        """How many images there are."""
        return len(self._images)

    def __len__(self) -> int:
        return -(-len(self._images) // self._batch_size)

    def __getitem__(self, index: Any) -> Any:
        """A batch, [count, channels, rows, columns]."""
        chosen = self._images[index * self._batch_size : (index + 1) * self._batch_size]
        if not chosen:
            raise IndexError(index)
        return torch.cat(list(self._chosen(chosen)))

    def _chosen(self, chosen: Sequence[tuple[Path, int]]) -> Iterator[Tensor]:
        for path, place in chosen:  # one after the other, since a map of a file keeps it open
            image = self._read(path)[place : place + 1].float()
            if not len(image):
                raise CheckpointError(f"{path} changed while it was read")
            if image.shape[1:] != self.shape:
                raise ImageSizesError(f"{path} and {self._images[0][0]} are of different sizes")
            yield image

    def _read(self, path: Path) -> Tensor:
        check_plain_file(path)
        ending, channels = path.suffix.lower(), self._preparation.channels
        if ending in SUFFIXES:
            return _batch(path, self._preparation.read(path), channels)
        return _batch(path, _read_array(path) if ending == ".npy" else _read_tensor(path), channels)


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
