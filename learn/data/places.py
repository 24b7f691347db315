"""Layouts of image folders: images in it, in a folder for each class, or in such folders for train, val and test.

FOLDER/a.png                      images without labels
FOLDER/cat/a.png                  a folder for each class
FOLDER/train/cat/a.png            the same for each part
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ...convert.errors import CheckpointError

PARTS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


@dataclass(frozen=True)
class Places:
    """Images of a folder.

    Attributes:
        files: In the order of their names, class by class.
        labels: The class of each, or None for images without.
        classes: Names of the classes, in their order.
    """

    files: tuple[Path, ...]
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()


def find_places(folder: Path, endings: Collection[str]) -> dict[str, Places]:
    """The images of a folder, part by part; all of them are the part "" where it has no folders for train and test.

    Args:
        folder: The folder.
        endings: Ends of the names of images, in lower case; other files and hidden ones are left alone.

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
