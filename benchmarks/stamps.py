"""Pages of stamps: a few handwritten digits, each printed several times, and the same page under heavy noise.

    python benchmarks/stamps.py build/stamps [--seeds 5] [--jobs 1] [--table]

A stamp alone can be cleaned only so far. Who finds its other copies, wherever they are on the page, can average over
them. A trained denoising CNN goes on for 500 steps as it is, with spare heads, and in other ways (learn/grafting.py);
each way's rate is chosen on validation pages of a seed that no table reports. Every page is drawn anew from a seed;
digits to learn from, to choose with and to test with are different ones.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from comparing import run
from denoisers import DrawnData, PageDenoiser, psnr, with_larger_kernel
from torch import Tensor, nn

from conv2attn.learn.arms import Arm, Comparison, Measure
from conv2attn.learn.data.datasets import digits
from conv2attn.learn.data.images import ImageData, Split
from conv2attn.learn.training.recipe import Recipe

ROWS, COLUMNS = 3, 4
"""Stamps of a page."""
KINDS = 2
"""Different stamps of a page: each is printed six times."""
NOISE = 1.0
"""Standard deviation; images go from -1 to 1."""
PITCH = 12
"""Pixels from a stamp to the next: a digit has 8, so no 17 x 17 pixels hold two whole ones."""
_CELL, _BEFORE = 8, 2
_VALIDATION, _TEST = 7, 8  # seeds


def pages(stamps: Split, count: int, generator: torch.Generator, *, kinds: int = KINDS) -> tuple[Tensor, Tensor]:
    """Draws pages, noisy and clean, [count, 1, 36, 48], each of so many kinds of stamps (1 to 12), alike often."""
    cells = ROWS * COLUMNS
    chosen = torch.rand(count, len(stamps.labels), generator=generator).topk(kinds, 1).indices  # different digits
    printed = torch.rand(count, cells, generator=generator).argsort(1) % kinds
    images = stamps.pictures()[chosen.gather(1, printed)].view(count, ROWS, COLUMNS, _CELL, _CELL)
    after = PITCH - _CELL - _BEFORE
    cell = F.pad(images, (_BEFORE, after, _BEFORE, after), value=-1.0)
    clean = cell.permute(0, 1, 3, 2, 4).reshape(count, 1, ROWS * PITCH, COLUMNS * PITCH)
    return clean + NOISE * torch.randn(clean.shape, generator=generator), clean


def training_pages(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws pages to learn from."""
    return pages(_digits().train, count, generator)


def validation_pages(count: int = 100) -> tuple[Tensor, Tensor]:
    """Pages to choose with."""
    return pages(_digits().validation, count, torch.Generator().manual_seed(_VALIDATION))


def unseen_pages(count: int = 400, *, kinds: int = KINDS) -> tuple[Tensor, Tensor]:
    """Pages with digits that no training has seen."""
    return pages(_digits().test, count, torch.Generator().manual_seed(_TEST), kinds=kinds)


@cache
def _digits() -> ImageData:
    return digits()


STAMPS_OF_A_PAGE = 1, 2, 3, 4, 6, 12
"""Different stamps of a page of twelve: each recurs as often as the others."""


def pages_to_choose() -> list[tuple[Tensor, Tensor]]:
    """The validation pages, as a batch."""
    return [validation_pages()]


def score_pages(network: nn.Module, _: int, *, count: int = 400) -> dict[str, float]:
    """PSNR on test pages in dB, by the number of different stamps of a page."""
    return {str(kinds): psnr(network, unseen_pages(count, kinds=kinds)) for kinds in STAMPS_OF_A_PAGE}


STAMPS = Comparison(
    name="stamps",
    new=PageDenoiser,
    what="to clean pages",
    data=DrawnData("stamps", training_pages, pages_to_choose, steps=50, batch=32),
    loss=F.mse_loss,
    score=score_pages,
    measures=(
        Measure("2", "PSNR, dB, each digit 6 times", "dB"),
        Measure("1", "12 times", "dB"),
        Measure("4", "3 times", "dB"),
        Measure("12", "nothing repeats", "dB"),
    ),
    arms={"kernel": Arm("a 9x9 kernel in the last 3x3 layer", with_larger_kernel, 5e-3)},
    start=Recipe(epochs=12, lr=3e-3, clip=1.0),
    onward=Recipe(epochs=10, clip=1.0),
    rates=(5e-3, 1e-2, 2e-2, 4e-2, 8e-2),
)

if __name__ == "__main__":
    run({"stamps": STAMPS}, __doc__)
