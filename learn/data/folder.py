"""Pictures in folders: without labels, in a folder for each class, or in such folders for train, val and test.

FOLDER/a.png                      images without labels
FOLDER/cat/a.png                  a folder for each class
FOLDER/train/cat/a.png            the same for each part
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...convert.errors import CheckpointError
from ...convert.preprocessing import Preprocessing
from ...convert.size import Size
from .images import ImageData, Split, divided
from .pictures import SUFFIXES, ImageSizesError, Reader, owners_reader, read_picture, read_pixels

PARTS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


@dataclass(frozen=True)
class Places:
    """Images of a folder, class by class in the order of their names, each with the number of its class, if any."""

    files: tuple[Path, ...]
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()


def find_places(folder: Path, endings: Collection[str]) -> dict[str, Places]:
    """The images of a folder, part by part; all of them are the part "" where it has no folders for train and test.

    Files whose names have other endings than these (in lower case), and hidden ones, are left alone.

    Raises:
        CheckpointError: The folder cannot be read, or its parts have different classes.
    """
    names = {name: part for part, known in PARTS.items() for name in known}
    try:
        inside = _folders(folder)
        parts = {names[each.name.lower()]: each for each in inside if each.name.lower() in names}
        if len(parts) != len(inside) or "train" not in parts or len(parts) < 2:
            return {"": _places(folder, endings)}
        found = {part: _places(parts[part], endings) for part in PARTS if part in parts}
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}") from error
    if len({places.classes for places in found.values()}) > 1:
        raise CheckpointError(f"{folder} has other classes in {', '.join(parts[part].name for part in found)}")
    return found


def _places(folder: Path, endings: Collection[str]) -> Places:
    """Images in a folder itself, else those in its folders, a class each."""
    own = _images(folder, endings)
    by_class = {} if own else {each.name: _images(each, endings) for each in _folders(folder)}
    by_class = {name: files for name, files in by_class.items() if files}
    if not by_class:
        return Places(tuple(own))
    files = [(path, label) for label, paths in enumerate(by_class.values()) for path in paths]
    return Places(tuple(path for path, _ in files), tuple(label for _, label in files), tuple(by_class))


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _images(folder: Path, endings: Collection[str]) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in endings and not path.is_dir())


MOST_BYTES = 2**31  # of all pictures together
_SHARES = 0.2, 0.1  # test, validation
_SEED = 0
_FEWEST = 3


def folder(
    path: Path, *, channels: int = 3, size: Size | None = None, preprocessing: Preprocessing | None = None
) -> ImageData:
    """The labelled pictures of a folder.

    Args:
        path: Holds a folder for each class, and each of these pictures, which are divided class by class and always
            alike: 70 % train, 10 % choose, 20 % test. Or it holds folders train, val and test, of classes each: what
            is not there is divided from train.
        channels: 1 for grey values, 3 for red, green and blue.
        size: Scale to these rows and columns; None does as the preprocessing says, and takes the first picture's where
            it does not say.
        preprocessing: The network's preprocessing in training, which scales, cuts and normalises pictures; without a
            size by its owner's own code, where that is installed.

    Raises:
        CheckpointError: There are fewer than two classes, or a class of fewer than three pictures; one cannot be read;
            they are more than ``MOST_BYTES``.
    """
    parts = find_places(path, SUFFIXES)
    places = list(parts.values())
    if len(places[0].classes) < 2:
        raise CheckpointError(
            f"{path} must hold a folder for each of at least two classes; it holds {len(places[0].classes)}"
        )
    _check_counts(path, places[-1] if "" in parts else parts["train"])
    own = None if preprocessing is None or size is not None else owners_reader(preprocessing)
    if own is None and size is None and (preprocessing is None or preprocessing.size is None):
        size = Size(*_pixels(places[0].files[0], channels, None, preprocessing).shape[1:])
    reader = own or (lambda picture: _pixels(picture, channels, size, preprocessing))
    normalization = None if own or preprocessing is None else preprocessing.normalization
    read = {part: _read(path, each, reader)._replace(normalization=normalization) for part, each in parts.items()}
    classes = places[0].classes
    if "" in read:
        test, validation, train = divided(read[""], shares=_SHARES, seed=_SEED)
        return ImageData("folder", classes, train, validation, test)
    missing = [part for part in ("test", "validation") if part not in read]
    shares = tuple(share for part, share in zip(("test", "validation"), _SHARES, strict=True) if part in missing)
    *taken, train = divided(read["train"], shares=shares, seed=_SEED)
    found = read | dict(zip(missing, taken, strict=True))
    return ImageData("folder", classes, train, found["validation"], found["test"])


def _read(path: Path, places: Places, reader: Reader) -> Split:
    """The pictures of one part."""
    first = reader(places.files[0])
    if len(places.files) * math.prod(first.shape) * first.itemsize > MOST_BYTES:
        raise CheckpointError(f"the pictures in {path} have more than {MOST_BYTES:,} bytes; scale them, or take fewer")
    images = torch.empty((len(places.files), *first.shape), dtype=first.dtype)
    for place, picture in enumerate(places.files):
        pixels = reader(picture)
        if pixels.shape != first.shape:
            raise ImageSizesError(f"{picture} and {places.files[0]} are of different sizes")
        images[place] = pixels
    return Split(images, torch.tensor(places.labels))


def _pixels(path: Path, channels: int, size: Size | None, preprocessing: Preprocessing | None) -> Tensor:
    if preprocessing is not None:
        return read_pixels(path, preprocessing, size)
    return read_picture(path, channels, size).add_(1).mul_(127.5).round_().to(torch.uint8)


def _check_counts(path: Path, places: Places) -> None:
    counts = torch.tensor(places.labels).bincount().tolist()
    few = [name for name, count in zip(places.classes, counts, strict=True) if count < _FEWEST]
    if few:
        raise CheckpointError(f"{path} has classes of fewer than three pictures: {', '.join(few[:10])}")
