"""Batches that are drawn anew from a number, so that a killed run continues with those it would have had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ..data.images import Loaders, Pairs

Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
"""Draws so many inputs, and what is to become of them."""


@dataclass(frozen=True)
class DrawnData:
    """Data to train networks with: ``steps`` new batches in each epoch, and always the same ones to choose with."""

    name: str
    draw: Draw
    validation: Callable[[], Pairs]
    steps: int
    batch: int

    def __call__(self, seed: int) -> Loaders:
        """The data of a seed; other seeds have other batches."""
        loader = DataLoader(_Batches(self.draw, self.batch), sampler=_Numbers(seed, self.steps), batch_size=None)
        return Loaders(f"{self.name}, seed {seed}", loader, self.validation())


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """A batch for each number."""

    def __init__(self, draw: Draw, size: int) -> None:
        self._draw, self._size = draw, size

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self._draw(self._size, torch.Generator().manual_seed(number))


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
