"""The only reader of pictures: grey values 0 to 255 become -1 to 1, wherever a picture is taken.

That is the range which conversions are certified for by default, and which drawn images have. A network that was
trained on other values takes pictures through its ``Preprocessing``, or preprocessed tensors from ``.npy`` or ``.pt``
files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...convert.arguments import Size
from ...convert.errors import CheckpointError, ConversionError, importing, refusing
from ...convert.files.preprocessing import Preprocessing, Transform, owners_transform

if TYPE_CHECKING:
    from PIL.Image import Image

Reader = Callable[[Path], Tensor]
"""Reads a picture, [channels, rows, columns]."""
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
LONGEST = 224  # pixels of the longer side that a picture to look at is scaled down to
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "WEBP")  # TIFF has tiles of any size; Pillow starts programs for others
_DEEP = ("I", "F")  # modes of numbers that do not fit into a byte
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_picture(path: Path, channels: int, size: Size | None = None, *, longest: int | None = None) -> Tensor:
    """Reads a picture; values 0 to 255 become -1 to 1.

    Args:
        path: A file of a usual kind.
        channels: 1 for grey values, 3 for red, green and blue, 4 for these and opacity.
        size: Scale to these rows and columns; None keeps the picture's.
        longest: Without a size, scale down to so many pixels on the longer side.

    Returns:
        [channels, rows, columns], float32.

    Raises:
        CheckpointError: The file cannot be read, is no picture, or too large for Pillow; or the channels are others.
    """
    return read_pixels(path, channels, size, longest=longest).float().div_(127.5).sub_(1)


def read_pixels(path: Path, channels: int, size: Size | None = None, *, longest: int | None = None) -> Tensor:
    """Reads a picture as bytes, 0 to 255; otherwise as ``read_picture``."""
    picture = _opened(path, channels)
    factor = 1.0 if longest is None else min(1.0, longest / max(picture.size))
    scaled = size or Size(*(max(1, round(length * factor)) for length in (picture.height, picture.width)))
    if scaled != (picture.height, picture.width):
        from PIL import Image

        picture = picture.resize((scaled.columns, scaled.rows), Image.Resampling.LANCZOS)
    values = torch.from_numpy(np.array(picture)).view(picture.height, picture.width, -1)
    return values.permute(2, 0, 1).contiguous()  # training on channels that lie last crashes torch 2.13 on CPUs


def owners_reader(preprocessing: Preprocessing) -> Reader | None:
    """Reads pictures by the owner's own code; None where that is not installed, or there is no owner."""
    try:
        transform = owners_transform(preprocessing)
    except ConversionError:
        return None
    return None if transform is None else partial(_prepared, transform, preprocessing.channels)


def _prepared(transform: Transform, channels: int, path: Path) -> Tensor:
    with refusing(f"{path} cannot be prepared", CheckpointError):
        return transform(_opened(path, channels))


def picture_reader(preprocessing: Preprocessing, size: Size | None = None) -> Reader:
    """Reads pictures as a network takes them, float32: by the owner's own code, if it is there and no size is given.

    Otherwise pictures are only scaled, to the given size or the network's, and normalised.
    """
    own = owners_reader(preprocessing) if size is None else None
    channels, scaled = preprocessing.channels, size or preprocessing.size
    return own or (lambda path: preprocessing.normalization(read_pixels(path, channels, scaled)))


def _opened(path: Path, channels: int) -> Image:
    lacking = 'pictures are read with Pillow, which is not installed: pip install "conv2attn[images]"'
    with importing("PIL", CheckpointError(lacking)):
        from PIL import Image, UnidentifiedImageError
    if channels not in _MODES:
        taken = f"the network takes {channels} channels, and pictures have 1, 3 or 4"
        raise CheckpointError(f"{path} cannot be used: {taken}; .npy and .pt files have any number")
    check_plain_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about oddities that Pillow can read
            with Image.open(path, formats=_FORMATS) as opened:
                if opened.mode.startswith(_DEEP):
                    raise CheckpointError(
                        f"{path} has more than 8 bits a channel; .npy and .pt files hold such numbers"
                    )
                return opened.convert(_MODES[channels])
    except CheckpointError:
        raise
    except UnidentifiedImageError as error:
        raise CheckpointError(f"{path} is not a picture of a kind that is read: {', '.join(_FORMATS)}") from error
    except Exception as error:  # a damaged file makes Pillow raise many things
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def check_plain_file(path: Path) -> None:
    """Refuses anything but a plain file: reading a pipe may never end, and reading a device may have effects.

    Raises:
        CheckpointError: It is a folder, a pipe or a device, or is not there.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is not a plain file" if path.exists() else f"there is no file {path}")
