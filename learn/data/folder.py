"""Pictures in a folder, one sub-folder a class."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from ...convert.errors import CheckpointError
from ...convert.size import Size
from .images import ImageData, Split, divided
from .pictures import SUFFIXES, read_picture

MOST_NUMBERS = 2**31  # of all pictures together, a byte each
_SHARES = 0.2, 0.1  # test, validation
_SEED = 0


def folder(path: Path, *, channels: int = 3, size: Size | None = None) -> ImageData:
    """The pictures of a folder, divided class by class and always alike: 70 % train, 10 % choose, 20 % test.

    Args:
        path: Holds a folder for each class, and each of these pictures.
        channels: 1 for grey values, 3 for red, green and blue.
        size: Scale to these rows and columns; None takes the first picture's.

    Raises:
        CheckpointError: There are fewer than two classes, or a class of fewer than three pictures; one cannot be read;
            they are more than ``MOST_NUMBERS``.
    """
    files = _files(path)
    first = next(iter(files.values()))[0]
    size = Size(*read_picture(first, channels).shape[1:]) if size is None else size
    count = sum(map(len, files.values()))
    if count * channels * math.prod(size) > MOST_NUMBERS:
        raise CheckpointError(
            f"the pictures in {path} have more than {MOST_NUMBERS:,} numbers; scale them, or take fewer"
        )
    images = torch.empty((count, channels, *size), dtype=torch.uint8)
    labels = torch.empty(count, dtype=torch.int64)
    place = 0
    for label, pictures in enumerate(files.values()):
        for picture in pictures:
            images[place] = read_picture(picture, channels, size).add_(1).mul_(127.5).round_()
            labels[place] = label
            place += 1
    test, validation, train = divided(Split(images, labels), shares=_SHARES, seed=_SEED)
    return ImageData("folder", tuple(files), train, validation, test)


def _files(path: Path) -> dict[str, list[Path]]:
    """The pictures of each class, by its name, all in the order of their names."""
    try:
        inside = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        found = {
            entry.name: sorted(each for each in entry.iterdir() if each.suffix.lower() in SUFFIXES) for entry in inside
        }
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if len(found) < 2:
        raise CheckpointError(f"{path} must hold a folder for each of at least two classes; it holds {len(found)}")
    few = [name for name, pictures in found.items() if len(pictures) < 3]
    if few:
        raise CheckpointError(f"{path} has classes of fewer than three pictures: {', '.join(few[:10])}")
    return found
