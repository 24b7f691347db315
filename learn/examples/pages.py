"""Pages of stamps: a few handwritten digits, each printed several times, and the same page under heavy noise.

A stamp alone can be cleaned only so far. Who finds its other copies, wherever they are on the page, can average over
them. Every page is drawn anew from a seed; digits to learn from, to choose with and to test with are different ones.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.images import ImageData, Split
from ..data.kinds import digits

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
