"""The image that a picture is about: a file's, or one that is drawn here.

Raises:
    CheckpointError: By ``read_image``, for a file that is no image.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import torch
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.spec import Size

DRAWN_SIZE = Size(64, 64)
LONGEST = 224  # pixels of the longer side that a file's image is scaled down to
_MODES = {1: "L", 3: "RGB"}


def drawn_image(channels: int, size: Size = DRAWN_SIZE) -> Tensor:
    """A ring, a square and a grating before a slope, each channel weighing them in its own way.

    Args:
        channels: How many.
        size: Rows and columns.

    Returns:
        [1, channels, rows, columns], float32, within -1 to 1.
    """
    row, column = torch.meshgrid(*((torch.arange(n) + 0.5) / n for n in size), indexing="ij")
    ring = _inside((torch.hypot(row - 0.34, column - 0.33) - 0.17).abs() - 0.05, size)
    square = _inside(torch.maximum((row - 0.68).abs(), (column - 0.64).abs()) - 0.17, size)
    grating = 0.5 + 0.5 * torch.sin(2 * math.pi * 9 * (row + column))
    slope = 0.5 * column - 0.35 * row
    planes = []
    for channel in range(channels):
        tint = math.cos(1.1 * channel + 0.4)  # no two of the first channels weigh alike
        planes.append(slope * (0.6 + 0.4 * tint) - ring * (0.55 + 0.2 * tint) + square * (0.25 - 0.35 * tint) * grating)
    return torch.stack(planes).clamp(-1, 1).unsqueeze(0)


def read_image(path: Path, channels: int, size: Size | None = None) -> Tensor:
    """Reads an image file; grey values 0 to 255 become -1 to 1.

    Args:
        path: Any file that Pillow reads.
        channels: 1 for grey values, 3 for red, green and blue.
        size: Scale to these rows and columns; by default only down, to ``LONGEST`` pixels on the longer side.

    Returns:
        [1, channels, rows, columns], float32.

    Raises:
        CheckpointError: The file cannot be read, is no image or too large, or the network takes other channels.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise CheckpointError("images are read with Pillow, which is not installed: pip install pillow") from error
    if channels not in _MODES:
        raise CheckpointError(f"{path} cannot be used: the network takes {channels} channels, an image file has 1 or 3")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                image = opened.convert(_MODES[channels])
    except UnidentifiedImageError as error:
        raise CheckpointError(f"{path} is not an image that Pillow reads") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise CheckpointError(f"{path} is an image of too many pixels") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    rows, columns = size or _scaled_down(Size(image.height, image.width))
    scaled = image.resize((columns, rows), Image.Resampling.LANCZOS)
    values = torch.frombuffer(bytearray(scaled.tobytes()), dtype=torch.uint8).view(1, rows, columns, channels)
    return values.permute(0, 3, 1, 2).float() / 127.5 - 1


def _scaled_down(size: Size) -> Size:
    factor = min(1.0, LONGEST / max(size))
    return Size(*(max(1, round(n * factor)) for n in size))


def _inside(distance: Tensor, size: Size) -> Tensor:
    """A signed distance to an outline (negative inside, the image's side is 1) as an antialiased coverage."""
    return (0.5 - distance * min(size)).clamp(0, 1)
