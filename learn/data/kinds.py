"""The data that a text like ``digits`` or ``folder:PATH`` names."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ...convert.errors import OptionError, ToolError, importing
from ...convert.examples.images import CLASSES, HELD_OUT_SEED, IMAGE_SIZE, draw_images
from ...convert.files.write import check_outside
from ...convert.preprocessing import Normalization, Preprocessing
from ...convert.size import Size
from .cifar10 import cifar10
from .folder import folder
from .images import ImageData, Split, divided

KINDS = "digits, digits:SIDE, drawn, drawn:SIDE, cifar10:PATH or folder:PATH"
"""Without a colon, the path of a folder means the same as folder:PATH, unless it is one of these words."""
_SIDES = 16, 256
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
    kind, colon, path = text.partition(":")
    if text and kind not in ("digits", "drawn", "cifar10", "folder") and Path(text).is_dir():
        kind, path = "folder", text
    if kind == "folder" and path:
        if out is not None:
            check_outside(out, Path(path))
        data = folder(Path(path), channels=channels or 3, size=size, preprocessing=whole)
        return data if normalization is None or whole is not None else data.normalized(normalization)
    side = int(path) if path.isascii() and path.isdecimal() and len(path) < 4 else 0
    if kind == "cifar10" and path:
        data = cifar10(Path(path))
    elif kind in ("digits", "drawn") and (not colon or _SIDES[0] <= side <= _SIDES[1]):
        data = digits(side or None) if kind == "digits" else _drawn((side, side) if side else IMAGE_SIZE)
    else:
        raise OptionError(
            f"data must be {KINDS}, with a side from {_SIDES[0]} to {_SIDES[1]}; got {text!r:.200}, which is no folder"
        )
    if size is not None:
        raise OptionError(f"the images of {kind} have their size; only a folder's are scaled")
    data = data if channels is None else data.for_channels(channels)
    return data if normalization is None else data.normalized(normalization)


def _drawn(size: tuple[int, int]) -> ImageData:
    """The shapes and gratings that the example networks were trained on, mostly from -1 to 1, none that they saw."""
    train, validation, test = (Split(*draw_images(count, seed=seed, size=size)) for count, seed in _DRAWN)
    return ImageData("drawn", CLASSES, train, validation, test)
