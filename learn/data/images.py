"""Images with labels, in three parts that no image is in two of; or batches from any ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ...convert.arguments import Size
from ...convert.errors import ConversionError
from ...convert.files.preprocessing import Normalization


class Split(NamedTuple):
    """Labelled images.

    Attributes:
        images: [count, channels, rows, columns]: float32 from -1 to 1, or uint8 from 0 to 255.
        labels: [count], int64, indices into the classes.
        normalization: How a network takes the images; None means from -1 to 1.
    """

    images: Tensor
    labels: Tensor
    normalization: Normalization | None = None

    def taken(self, indices: Tensor | slice) -> Split:
        """Some of the images, in this order."""
        return self._replace(images=self.images[indices], labels=self.labels[indices])

    def batches(self, size: int) -> Iterator[Split]:
        """All of the images in their order, so many at a time."""
        return (self.taken(slice(start, start + size)) for start in range(0, len(self.labels), size))

    def pictures(self) -> Tensor:
        """The images as float32 from -1 to 1."""
        return self.images.float().div_(127.5).sub_(1) if self.images.dtype == torch.uint8 else self.images

    def numbers(self) -> Tensor:
        """The images as a network takes them, float32."""
        return self.pictures() if self.normalization is None else self.normalization(self.images)


@dataclass(frozen=True)
class ImageData:
    """Images for training, validation and test.

    Attributes:
        name: Its kind.
        classes: Names of the labels.
        validation: Images that choose between epochs.
        test: Images that are looked at once.
        flips: Whether an image and its mirror image mean the same.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    flips: bool = False

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return self.train.images.shape[1]

    @property
    def is_grey_repeated(self) -> bool:
        """Whether the channels are one grey channel, repeated by ``for_channels``."""
        return self.channels > 1 and self.train.images.stride(1) == 0

    @property
    def size(self) -> Size:
        """Rows and columns of an image."""
        return Size(*self.train.images.shape[2:])

    @property
    def parts(self) -> tuple[Split, Split, Split]:
        """The three parts."""
        return self.train, self.validation, self.test

    def for_channels(self, channels: int) -> Self:
        """The same images for a network that takes this number of channels: grey becomes equal red, green and blue.

        Raises:
            ConversionError: The images have other channels, and are not grey.
        """
        if self.channels not in (channels, 1):
            raise ConversionError(
                f"the network takes {channels} channels; the images of {self.name} have {self.channels}"
            )
        train, validation, test = (
            split._replace(images=split.images.expand(-1, channels, -1, -1)) for split in self.parts
        )
        return replace(self, train=train, validation=validation, test=test)

    def normalized(self, normalization: Normalization | None) -> Self:
        """The same images for a network that was trained with this normalization.

        Raises:
            OptionError: The normalization is for another number of channels.
        """
        train, validation, test = (split._replace(normalization=normalization) for split in self.parts)
        train.taken(slice(1)).numbers()  # refuses other channels
        return replace(self, train=train, validation=validation, test=test)


Pairs = Iterable[tuple[Tensor, Tensor]]
"""Inputs of a network and its wanted outputs, a batch at a time."""


@dataclass(frozen=True)
class Loaders:
    """Loaders for training and validation.

    Attributes:
        name: Name in a run's folder.
        train: Batches to learn from. With several processes Lightning gives each its share of a loader that has one of
            torch's own samplers; ``set_epoch`` of a sampler that has it is called each epoch.
        validation: Batches that choose between epochs, the same each time.
    """

    name: str
    train: DataLoader[tuple[Tensor, Tensor]]
    validation: Pairs


def divided(images: Split, *, shares: tuple[float, ...], seed: int) -> tuple[Split, ...]:
    """Parts of these shares, and one of the rest, each with about the same share of every class.

    Args:
        images: All images.
        shares: Of every part but the last; every class has at least one image in each, if it has enough.
        seed: Seed of the order in which the images of a class are dealt out.
    """
    generator = torch.Generator().manual_seed(seed)
    parts: list[list[Tensor]] = [[] for _ in (*shares, 1.0)]
    for label in images.labels.unique():
        (own,) = torch.where(images.labels == label)
        own = own[torch.randperm(len(own), generator=generator, device="cpu")]
        for part, share in zip(parts, shares, strict=False):
            count = max(1, round(share * len(images.labels[images.labels == label])))
            part.append(own[:count])
            own = own[count:]
        parts[-1].append(own)
    return tuple(images.taken(torch.cat(part).sort().values) for part in parts)
