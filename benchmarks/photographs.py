"""Photographs under noise: textures on which the same recurs, and scenes on which little does.

    pip install scikit-image
    python benchmarks/photographs.py build/photographs [--seeds 5] [--jobs 1] [--table]

Each photograph that scikit-image ships is cut from left to right into a part to learn from, one to choose with and one
to test with, so that what is tested is another place of a picture whose kind was seen. Noise of 15 to 50 of 255 grey
levels is drawn for each crop. A trained denoising CNN goes on as it is, with spare heads, and in other ways
(learn/grafting.py).
"""

from __future__ import annotations

import statistics
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from comparing import folder_of, run
from denoisers import DrawnData, PhotographDenoiser, noised, psnr, with_larger_kernel
from torch import Tensor, nn

from conv2attn.learn.arms import Arm, Comparison, Measure
from conv2attn.learn.data.pictures import read_picture
from conv2attn.learn.training.recipe import Recipe

RECURRING = "brick", "coins", "grass", "gravel", "page", "text"
SCENES = "astronaut", "camera", "chelsea", "coffee", "moon", "motorcycle_left", "rocket"
LEVELS = 15, 25, 50
"""Standard deviations of the noise on test crops, in grey levels of 255."""
SIDE = 64
"""Pixels of a crop's side."""
_SHARES = {"train": (0.0, 0.55), "validation": (0.55, 0.75), "test": (0.75, 1.0)}
_SEEDS = {"validation": 7, "test": 8}


def photographs(part: str, *, channels: int = 1) -> dict[str, Tensor]:
    """A part ("train", "validation", "test") of each picture, [channels, rows, columns], values from -1 to 1."""
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
    return noised(clean, levels, generator)


def grid_crops(name: str, part: str, level: int, *, rows: int = 4) -> tuple[Tensor, Tensor]:
    """The same crops of a picture each time, noisy and clean, [2 rows, 1, 64, 64].

    There are ``rows`` from top to bottom, evenly apart, at the part's left and at its right.
    """
    image = _part(part)[name]
    tops = np.linspace(0, image.shape[0] - SIDE, rows).astype(int).tolist()
    lefts = 0, image.shape[1] - SIDE
    clean = torch.stack([image[top : top + SIDE, left : left + SIDE] for top in tops for left in lefts]).unsqueeze(1)
    seed = 1000 * _SEEDS[part] + level
    return noised(clean, float(level), torch.Generator().manual_seed(seed))


@cache
def _part(part: str) -> dict[str, Tensor]:
    return {name: image[0] for name, image in photographs(part).items()}


@cache
def _read(channels: int) -> dict[str, Tensor]:
    folder = folder_of("skimage", "the photographs are scikit-image's: pip install scikit-image") / "data"
    paths = {name: next(folder.glob(f"{name}.*")) for name in (*RECURRING, *SCENES)}
    return {name: read_picture(path, channels) for name, path in paths.items()}


GROUPS = {"recurring": RECURRING, "scenes": SCENES}


def score_photographs(network: nn.Module, _: int, *, rows: int = 4) -> dict[str, float]:
    """PSNR in dB on test crops: for each picture and noise, and means over groups of pictures and all noise."""
    found = {
        f"{name} {level}": psnr(network, grid_crops(name, "test", level, rows=rows))
        for names in GROUPS.values()
        for name in names
        for level in LEVELS
    }
    means = {
        group: statistics.fmean(found[f"{name} {level}"] for name in names for level in LEVELS)
        for group, names in GROUPS.items()
    }
    return found | means


@cache
def validation_crops(rows: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Crops of every picture under every noise, to choose with."""
    names = (*RECURRING, *SCENES)
    return [grid_crops(name, "validation", level, rows=rows) for name in names for level in LEVELS]


PHOTOGRAPHS = Comparison(
    name="photographs",
    new=PhotographDenoiser,
    what="to clean photographs",
    data=DrawnData("photographs", training_crops, validation_crops, steps=100, batch=16),
    loss=F.mse_loss,
    score=score_photographs,
    measures=(Measure("recurring", "PSNR, dB, textures", "dB", digits=3), Measure("scenes", "scenes", "dB", digits=3)),
    arms={"kernel": Arm("a 9x9 kernel in the last 3x3 layer", with_larger_kernel, 1e-3)},
    start=Recipe(epochs=10, lr=4e-3, clip=1.0),
    onward=Recipe(epochs=6, clip=1.0, batch_statistics=False),  # those of 16 crops move more than the weights
    rates=(3e-4, 1e-3, 3e-3, 1e-2),
    rounds=3,
    one_start=True,
)

if __name__ == "__main__":
    run({"photographs": PHOTOGRAPHS}, __doc__)
