"""Photographs that scikit-image ships, under noise: textures on which the same recurs, and scenes on which little does.

Each is cut from left to right into a part to learn from, one to choose with and one to test with, so that what is
tested is another place of a picture whose kind was seen. Noise of 15 to 50 of 255 grey levels is drawn for each crop.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...convert.errors import ToolError
from ..data.pictures import read_picture

RECURRING = "brick", "coins", "grass", "gravel", "page", "text"
SCENES = "astronaut", "camera", "chelsea", "coffee", "moon", "motorcycle_left", "rocket"
LEVELS = 15, 25, 50
"""Standard deviations of the noise on test crops, in grey levels of 255."""
SIDE = 64
"""Pixels of a crop's side."""
_SHARES = {"train": (0.0, 0.55), "validation": (0.55, 0.75), "test": (0.75, 1.0)}
_SEEDS = {"validation": 7, "test": 8}


def photographs(part: str, *, channels: int = 1) -> dict[str, Tensor]:
    """A part ("train", "validation", "test") of each picture, [channels, rows, columns], values from -1 to 1.

    Raises:
        ToolError: scikit-image is not installed.
        CheckpointError: Pillow is not installed.
    """
    low, high = _SHARES[part]
    images = _read(channels)
    return {name: image[..., int(low * image.shape[2]) : int(high * image.shape[2])] for name, image in images.items()}


def training_crops(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws crops to learn from, noisy and clean, [count, 1, 64, 64]: any picture, place, and noise of the range."""
    images = list(_part("train").values())
    found = []
    for index in torch.randint(len(images), (count,), generator=generator).tolist():
        image = images[index]
        row, column = (int(torch.randint(n - SIDE + 1, (1,), generator=generator)) for n in image.shape)
        found.append(image[row : row + SIDE, column : column + SIDE])
    clean = torch.stack(found).unsqueeze(1)
    levels = LEVELS[0] + (LEVELS[-1] - LEVELS[0]) * torch.rand(count, 1, 1, 1, generator=generator)
    return noised(clean, levels, generator), clean


def grid_crops(name: str, part: str, level: int, *, rows: int = 4) -> tuple[Tensor, Tensor]:
    """The same crops of a picture each time, noisy and clean, [2 rows, 1, 64, 64].

    There are ``rows`` from top to bottom, evenly apart, at the part's left and at its right.
    """
    image = _part(part)[name]
    tops = np.linspace(0, image.shape[0] - SIDE, rows).astype(int).tolist()
    lefts = 0, image.shape[1] - SIDE
    clean = torch.stack([image[top : top + SIDE, left : left + SIDE] for top in tops for left in lefts]).unsqueeze(1)
    seed = 1000 * _SEEDS[part] + level
    return noised(clean, torch.tensor(float(level)), torch.Generator().manual_seed(seed)), clean


def noised(clean: Tensor, level: Tensor, generator: torch.Generator) -> Tensor:
    """Images with normal noise of a standard deviation in grey levels of 255."""
    return clean + level / 127.5 * torch.randn(clean.shape, generator=generator)


@cache
def _part(part: str) -> dict[str, Tensor]:
    return {name: image[0] for name, image in photographs(part).items()}


@cache
def _read(channels: int) -> dict[str, Tensor]:
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise ToolError(
            'the photographs come with scikit-image, which is not installed: pip install "conv2attn[learn]"'
        )
    folder = Path(spec.origin).parent / "data"
    paths = {name: next(folder.glob(f"{name}.*")) for name in (*RECURRING, *SCENES)}
    return {name: read_picture(path, channels) for name, path in paths.items()}
