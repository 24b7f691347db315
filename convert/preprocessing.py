"""Normalisation of pictures: what a network was trained on, as torchvision's ``Normalize`` says it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import OptionError


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of each channel, for pictures scaled to the range 0 to 1.

    Attributes:
        mean: One number for all channels, or one a channel.
        std: Likewise; positive.

    Raises:
        OptionError: The numbers are not finite, a deviation is not positive, or their counts differ.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (self.mean and self.std and all(map(math.isfinite, (*self.mean, *self.std))) and min(self.std) > 0):
            raise OptionError(f"mean must be finite and std positive; got mean {self.mean}, std {self.std}")
        if len({len(self.mean), len(self.std)} - {1}) > 1:
            raise OptionError(f"mean and std must have as many numbers; got {len(self.mean)} and {len(self.std)}")

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures as a network takes them: (p - mean) / std, with p from 0 to 1.

        Args:
            pictures: [..., channels, rows, columns], values -1 to 1, as pictures are read.

        Raises:
            OptionError: The pictures have another number of channels.
        """
        channels = pictures.shape[-3]
        if not {len(self.mean), len(self.std)} <= {1, channels}:
            count = max(len(self.mean), len(self.std))
            raise OptionError(f"mean and std have {count} numbers; the network takes {channels} channels")
        mean, std = (torch.tensor(numbers).view(-1, 1, 1).to(pictures) for numbers in (self.mean, self.std))
        return ((pictures + 1) / 2 - mean) / std
