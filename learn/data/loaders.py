"""Batches of one's own: any ``DataLoader``, for any network and loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor
from torch.utils.data import DataLoader

Pairs = Iterable[tuple[Tensor, Tensor]]
"""What a network takes, and what its output is to be, a batch at a time."""


@dataclass(frozen=True)
class Loaders:
    """Loaders for training and validation.

    Attributes:
        name: What a run's folder calls it.
        train: Batches to learn from. With several processes Lightning gives each its share of a loader that has one of
            torch's own samplers; a sampler that has ``set_epoch`` is told each epoch.
        validation: Batches that choose between epochs, the same each time.
    """

    name: str
    train: DataLoader[tuple[Tensor, Tensor]]
    validation: Pairs
