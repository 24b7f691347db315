"""Pages of stamps: a few handwritten digits, each printed several times, and the same page under heavy noise.

A stamp alone can be cleaned only so far. Who finds its other copies, wherever they are on the page, can average over
them. Every page is drawn anew from a seed; digits to learn from, to choose with and to test with are different ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ..data.digits import digits
from ..data.images import Split
from ..data.loaders import Loaders

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
    """Draws pages.

    Args:
        stamps: Digits to print.
        count: How many pages.
        generator: Of the digits, their places and the noise.
        kinds: Different stamps of a page, which are as often on it as possible; 1 to 12.

    Returns:
        Noisy pages and clean ones, [count, 1, 36, 48].
    """
    cells = ROWS * COLUMNS
    chosen = torch.rand(count, len(stamps.labels), generator=generator).topk(kinds, 1).indices  # different digits
    printed = torch.rand(count, cells, generator=generator).argsort(1) % kinds
    images = stamps.pictures()[chosen.gather(1, printed)].view(count, ROWS, COLUMNS, _CELL, _CELL)
    after = PITCH - _CELL - _BEFORE
    cell = F.pad(images, (_BEFORE, after, _BEFORE, after), value=-1.0)
    clean = cell.permute(0, 1, 3, 2, 4).reshape(count, 1, ROWS * PITCH, COLUMNS * PITCH)
    return clean + NOISE * torch.randn(clean.shape, generator=generator), clean


def page_loaders(seed: int, *, steps: int, batch: int = 32, validation: int = 100) -> Loaders:
    """Pages to train a network with: so many new batches each epoch, and always the same ones to choose with.

    Args:
        seed: Of the pages.
        steps: Batches of an epoch.
        batch: Pages of a batch.
        validation: Pages to choose with.
    """
    data = digits()
    train = DataLoader(_Batches(data.train, batch), sampler=_Numbers(seed, steps), batch_size=None)
    chosen_with = pages(data.validation, validation, torch.Generator().manual_seed(_VALIDATION))
    return Loaders(f"pages of stamps, seed {seed}", train, [chosen_with])


def unseen_pages(count: int = 400, *, kinds: int = KINDS) -> tuple[Tensor, Tensor]:
    """Pages with digits that no training has seen."""
    return pages(digits().test, count, torch.Generator().manual_seed(_TEST), kinds=kinds)


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """A batch of pages for each number."""

    def __init__(self, stamps: Split, batch: int) -> None:
        self._stamps, self._batch = stamps, batch

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return pages(self._stamps, self._batch, torch.Generator().manual_seed(number))


class _Numbers(Sampler[int]):
    """The numbers of an epoch's batches, which no other epoch or seed has."""

    def __init__(self, seed: int, steps: int) -> None:
        self._seed, self._steps, self._epoch = seed, steps, 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; Lightning calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[int]:
        first = (self._seed + 1) * 10**6 + self._epoch * self._steps
        return iter(range(first, first + self._steps))
