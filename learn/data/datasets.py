"""Data sets by name, ``digits`` or ``folder:PATH``: digits, drawn images, CIFAR-10, folders of pictures.

CIFAR-10 is read in its binary version, ``cifar-10-binary.tar.gz``, packed or unpacked: a record is a byte for the label
and 32 x 32 pixels, their red values row by row, then green, then blue. (A. Krizhevsky, Learning Multiple Layers of
Features from Tiny Images, 2009.)

Pictures lie in folders without labels, in a folder for each class, or in such folders for train, val and test:

    FOLDER/a.png                      images without labels
    FOLDER/cat/a.png                  a folder for each class
    FOLDER/train/cat/a.png            the same for each part
"""

from __future__ import annotations

import math
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from ...convert.arguments import Size
from ...convert.errors import CheckpointError, ImageSizesError, OptionError, ToolError, importing
from ...convert.examples.images import CLASSES, HELD_OUT_SEED, IMAGE_SIZE, draw_images
from ...convert.files.preprocessing import Normalization, Preprocessing
from ...convert.write import check_outside
from .images import ImageData, Split, divided
from .kinds import data_kind, sized
from .pictures import SUFFIXES, Reader, owners_reader, read_pixels

_DRAWN = (2048, 1_000), (1000, 2_000), (1000, HELD_OUT_SEED)  # images and seed of each part; the examples saw 0 to 29
_DARKEST = 16.0  # grey values of handwritten digits are counts of dark pixels of 16


def digits(side: int | None = None) -> ImageData:
    """Handwritten digits: 1797 real ones, [1, 8, 8] each, values from -1 to 1, which scikit-learn ships.

    They are the test set of the UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998). The
    division is ours, and always the same: 25 % test, 15 % choose, 60 % train.

    Args:
        side: Rows and columns to scale them to, bilinearly.

    Raises:
        ToolError: scikit-learn is not installed.
    """
    lacking = 'the digits come with scikit-learn, which is not installed: pip install "conv2attn[learn]"'
    with importing("sklearn", ToolError(lacking)):
        from sklearn.datasets import load_digits
    found = load_digits()
    images = torch.from_numpy(found.images).float().unsqueeze(1).mul_(2 / _DARKEST).sub_(1)
    if side is not None:
        images = F.interpolate(images, (side, side), mode="bilinear")
    test, validation, train = divided(Split(images, torch.from_numpy(found.target).long()), shares=(0.25, 0.15), seed=0)
    return ImageData("digits", tuple("0123456789"), train, validation, test)


def load_data(
    text: str,
    *,
    channels: int | None = None,
    size: Size | None = None,
    preprocessing: Preprocessing | Normalization | None = None,
    out: Path | None = None,
) -> ImageData:
    """Loads images.

    Args:
        text: One of ``KINDS`` (``kinds.py``).
        channels: Channels of the network's input; None takes those of the images.
        size: Size to scale a folder's pictures to; None takes the first one's.
        preprocessing: The network's in training. A ``Preprocessing`` scales and cuts a folder's pictures, too, a
            ``Normalization`` is mean and deviation alone; None means values from -1 to 1.
        out: Where what is made with them will be; in a folder of pictures it would be one of their classes.

    Raises:
        OutputError: ``out`` is in the folder of the pictures.
        OptionError: There is no such kind of data, or the normalization is for other channels.
        CheckpointError: A file or folder cannot be read, or holds something else.
        ToolError: scikit-learn is needed, and not installed.
        ConversionError: The images do not have the network's channels.
    """
    whole = preprocessing if isinstance(preprocessing, Preprocessing) else None
    normalization = preprocessing.normalization if isinstance(preprocessing, Preprocessing) else preprocessing
    kind, path = data_kind(text)
    if size is not None and kind != "folder":
        instead = sized(kind, size)
        raise OptionError(
            f"only a folder's pictures are scaled to a size; got the size {size} for {text}"
            f"{f', and data {instead} has it' if instead else ''}"
        )
    if kind == "folder":
        if out is not None:
            check_outside(out, Path(path))
        data = folder(Path(path), channels=channels or 3, size=size, preprocessing=whole)
        return data if normalization is None or whole is not None else data.normalized(normalization)
    side = int(path) if path and kind != "cifar10" else None
    if kind == "cifar10":
        data = cifar10(Path(path))
    else:
        data = digits(side) if kind == "digits" else _drawn((side, side) if side else IMAGE_SIZE)
    data = data if channels is None else data.for_channels(channels)
    return data if normalization is None else data.normalized(normalization)


def _drawn(size: tuple[int, int]) -> ImageData:
    """The shapes and gratings that the example networks were trained on, mostly from -1 to 1, none that they saw."""
    train, validation, test = (Split(*draw_images(count, seed=seed, size=size)) for count, seed in _DRAWN)
    return ImageData("drawn", CLASSES, train, validation, test)


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
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
    return ImageData("cifar10", CIFAR10_CLASSES, train, validation, test, flips=True)


def _split(name: str, content: bytes) -> Split:
    if not content or len(content) % _RECORD:
        raise CheckpointError(f"{name} is cut short: {len(content)} bytes are not records of {_RECORD}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _RECORD)
    labels = records[:, 0].long()
    if labels.max() >= len(CIFAR10_CLASSES):
        raise CheckpointError(
            f"{name} has the label {int(labels.max())}; labels must be 0 to {len(CIFAR10_CLASSES) - 1}"
        )
    return Split(records[:, 1:].reshape(-1, *_SHAPE), labels)


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
        path: Holds a folder for each class, and each of these pictures, which are divided class by class, always in the
            same way: 70 % train, 10 % choose, 20 % test. Or it holds folders train, val and test, of classes each: what
            is not there is divided from train.
        channels: 1 for grey values, 3 for red, green and blue.
        size: Scale to these rows and columns; None does as the preprocessing says, and takes the first picture's where
            it does not say.
        preprocessing: The network's preprocessing in training: without a size its owner's own code, where that is
            installed; otherwise pictures are scaled and normalised.

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
    learned = places[-1] if "" in parts else parts["train"]
    counts = torch.tensor(learned.labels, device="cpu").bincount().tolist()
    if few := [name for name, count in zip(learned.classes, counts, strict=True) if count < _FEWEST]:
        raise CheckpointError(f"{path} has classes of fewer than three pictures: {', '.join(few[:10])}")
    # how pictures are read
    own = None if preprocessing is None or size is not None else owners_reader(preprocessing)
    if preprocessing is not None:
        channels, size = preprocessing.channels, size or preprocessing.size
    if own is None and size is None:
        size = Size(*read_pixels(places[0].files[0], channels).shape[1:])
    reader = own or (lambda picture: read_pixels(picture, channels, size))
    normalization = None if own or preprocessing is None else preprocessing.normalization
    read = {part: _read(path, each, reader)._replace(normalization=normalization) for part, each in parts.items()}
    # the three parts: from one folder, or those that are missing from train
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
    first = reader(places.files[0])
    if len(places.files) * math.prod(first.shape) * first.itemsize > MOST_BYTES:
        raise CheckpointError(f"the pictures in {path} have more than {MOST_BYTES:,} bytes; scale them, or take fewer")
    images = torch.empty((len(places.files), *first.shape), dtype=first.dtype, device="cpu")
    for place, picture in enumerate(places.files):
        pixels = reader(picture)
        if pixels.shape != first.shape:
            raise ImageSizesError(f"{picture} and {places.files[0]} are of different sizes")
        images[place] = pixels
    return Split(images, torch.tensor(places.labels, device="cpu"))
