"""The batches of each epoch: which images, in which order, shifted how; all of it decided by a seed and the epoch.

Every process draws the same order, and takes every n-th image of each batch, n being the number of processes. So the
batches of n processes together are those of one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ...convert.errors import ConversionError
from ..data.images import ImageData
from .recipe import MOST_EPOCHS, Recipe

DRAWS = 3  # numbers from 0 to 1 for each image: shifts along rows and columns, mirror
_SHIFT = 8  # an image is shifted by up to this part of its sides
Key = tuple[Tensor, Tensor | None]


class Order(Sampler[Key]):
    """For each batch of an epoch, the indices of a process's images and what their augmentation draws."""

    def __init__(self, count: int, recipe: Recipe, *, process: int = 0, processes: int = 1) -> None:
        if recipe.batch_size % processes:
            raise ConversionError(
                f"batches of {recipe.batch_size} images cannot be shared alike by {processes} processes"
            )
        self._count, self._recipe, self._process, self._processes = count, recipe, process, processes
        self._size = min(recipe.batch_size, count // processes * processes)
        if not self._size:
            raise ConversionError(f"{count} images are too few for {processes} processes")
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; Lightning calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._count // self._size

    def __iter__(self) -> Iterator[Key]:
        generator = torch.Generator().manual_seed(self._recipe.seed * MOST_EPOCHS + self._epoch)
        order = torch.randperm(self._count, generator=generator)
        draws = torch.rand(self._count, DRAWS, generator=generator)
        for batch in range(len(self)):
            places = slice(batch * self._size + self._process, (batch + 1) * self._size, self._processes)
            yield order[places], draws[places] if self._recipe.augment else None


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """The images of a key, and their labels."""

    def __init__(self, data: ImageData) -> None:
        self._data = data

    def __getitem__(self, key: Key) -> tuple[Tensor, Tensor]:
        indices, draws = key
        taken = self._data.train.taken(indices)
        images = taken.numbers()
        return images if draws is None else augmented(images, draws, flips=self._data.flips), taken.labels


def batches(
    data: ImageData, recipe: Recipe, *, process: int = 0, processes: int = 1
) -> DataLoader[tuple[Tensor, Tensor]]:
    """A loader of a process's training batches, for Lightning.

    Raises:
        ConversionError: The processes cannot share the batches alike.
    """
    order = Order(len(data.train.labels), recipe, process=process, processes=processes)
    return DataLoader(_Batches(data), sampler=order, batch_size=None)


def augmented(images: Tensor, draws: Tensor, *, flips: bool) -> Tensor:
    """Images [batch, channels, rows, columns], each shifted by up to an eighth of its sides, its border repeated.

    With ``flips`` half of them are mirrored. ``draws``, [batch, ``DRAWS``] from 0 to 1, decide.
    """
    rows, columns = images.shape[2:]
    most = rows // _SHIFT, columns // _SHIFT
    padded = F.pad(images, (most[1], most[1], most[0], most[0]), mode="replicate")
    shifts = [(draws[:, axis] * (2 * far + 1)).long().clamp(max=2 * far) for axis, far in enumerate(most)]
    at_rows = shifts[0][:, None] + torch.arange(rows)
    at_columns = shifts[1][:, None] + torch.arange(columns)
    if flips:
        mirrored = (draws[:, 2] < 0.5)[:, None]
        at_columns = torch.where(mirrored, at_columns.flip(1), at_columns)
    batch = torch.arange(len(images))[:, None, None]
    taken = padded.permute(0, 2, 3, 1)[batch, at_rows[:, :, None], at_columns[:, None, :]]
    return taken.permute(0, 3, 1, 2).contiguous()
