"""A small network and few images, so that an epoch takes a moment."""

from __future__ import annotations

import torch
from torch import nn

from conv2attn.learn.data.images import ImageData, Split
from conv2attn.learn.training.recipe import Session

RESUMED = Session(resume=True)


def network(*, seed: int = 0, channels: int = 1, classes: int = 3) -> nn.Module:
    """Two convolutions with batch normalisation, whose random state is its own."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(channels, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, classes),
        )


def data(*, count: int = 50, classes: int = 3, channels: int = 1) -> ImageData:
    """Noise, with a bright row that shows the class."""
    generator = torch.Generator().manual_seed(1)

    def split(images: int) -> Split:
        labels = torch.arange(images) % classes
        noise = torch.randn(images, channels, 6, 7, generator=generator) / 3
        noise[torch.arange(images), :, labels] += 1
        return Split(noise.clamp(-1, 1), labels)

    return ImageData("small", tuple("abcdefghij"[:classes]), split(count), split(15), split(20))
