"""Loading of the data that a text like ``digits`` or ``folder:PATH`` names."""

from __future__ import annotations

from pathlib import Path

from ...convert.errors import OptionError
from ...convert.examples.images import CLASSES, HELD_OUT_SEED, IMAGE_SIZE, draw_images
from ...convert.files.write import check_outside
from ...convert.preprocessing import Normalization, Preprocessing
from ...convert.size import Size
from .cifar10 import cifar10
from .digits import digits
from .folder import folder
from .images import ImageData, Split

KINDS = "digits, digits:SIDE, drawn, drawn:SIDE, cifar10:PATH or folder:PATH"
"""Without a colon, the path of a folder means the same as folder:PATH, unless it is one of these words."""
_SIDES = 16, 256
_DRAWN = (2048, 1_000), (1000, 2_000), (1000, HELD_OUT_SEED)  # images and seed of each part; the examples saw 0 to 29


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
        text: One of ``KINDS``.
        channels: Channels of the network's input; None takes those of the images.
        size: Size to scale a folder's pictures to; None takes the first one's.
        preprocessing: What the network was trained on. A ``Preprocessing`` scales and cuts a folder's pictures, too, a
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
    found = _load(text, channels=channels, size=size, preprocessing=whole, out=out)
    return found if normalization is None else found.normalized(normalization)


def _load(
    text: str, *, channels: int | None, size: Size | None, preprocessing: Preprocessing | None, out: Path | None
) -> ImageData:
    kind, _, path = text.partition(":")
    if text and kind not in ("digits", "drawn", "cifar10", "folder") and Path(text).is_dir():
        kind, path = "folder", text
    if kind == "folder" and path:
        if out is not None:
            check_outside(out, Path(path))
        return folder(Path(path), channels=channels or 3, size=size, preprocessing=preprocessing)
    if text in ("digits", "drawn"):
        data = digits() if text == "digits" else _drawn(IMAGE_SIZE)
    elif kind == "cifar10" and path:
        data = cifar10(Path(path))
    elif kind in ("digits", "drawn") and path.isascii() and path.isdecimal() and _is_side(side := int(path[:9])):
        data = digits(side) if kind == "digits" else _drawn((side, side))
    else:
        raise OptionError(f"data must be {KINDS}, with a side from {_SIDES[0]} to {_SIDES[1]}; got {text!r:.200}")
    if size is not None:
        raise OptionError(f"the images of {kind} have their size; only a folder's are scaled")
    return data if channels is None else data.for_channels(channels)


def _drawn(size: tuple[int, int]) -> ImageData:
    """The shapes and gratings that the example networks were trained on, mostly from -1 to 1, none that they saw."""
    train, validation, test = (Split(*draw_images(count, seed=seed, size=size)) for count, seed in _DRAWN)
    return ImageData("drawn", CLASSES, train, validation, test)


def _is_side(number: int) -> bool:
    return _SIDES[0] <= number <= _SIDES[1]
