"""Storages whose numbers are not in a file as torch keeps them, but are made of what is: decoded, widened, dequantised.

What is made is charged to the budget before it exists, as a copy is, and made when its first tensor is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .stored import Source, Storage, StoredTensor


@dataclass(slots=True, eq=False)
class MadeStorage(Storage):
    """Numbers that are made when they are first wanted.

    Attributes:
        make: Makes them, of any shape, contiguous, and of ``nbytes`` bytes in all.
        spare: Bytes that it takes besides them while it runs.
    """

    make: Callable[[], Tensor] = field(kw_only=True)
    spare: int = field(kw_only=True)

    @property
    def is_in_file(self) -> bool:
        """What they are made of was checked when that was described."""
        return True

    def numbers(self, dtype: torch.dtype, first: int, count: int) -> Tensor:
        """Some of its numbers."""
        if self.copy is None:
            self.source.budget.spend(memory=self.nbytes + self.spare)
            self.copy = self.make().reshape(-1).view(torch.uint8)
            self.source.budget.memory += self.spare
        return self.copy[first * dtype.itemsize : (first + count) * dtype.itemsize].view(dtype)


def made(
    source: Source, dtype: torch.dtype, shape: tuple[int, ...], make: Callable[[], Tensor], *, spare: int = 0
) -> StoredTensor:
    """A tensor that is made when it is first read.

    Args:
        source: The file whose budget it is charged to.
        dtype: The dtype of its numbers.
        shape: Its shape.
        make: As ``MadeStorage.make``.
        spare: As ``MadeStorage.spare``.
    """
    storage = MadeStorage(source, math.prod(shape) * dtype.itemsize, make=make, spare=spare)
    return StoredTensor.of(storage, dtype, shape=shape)
