"""ResNet10 and ResNet18 for small images (He et al.): the convolutional networks beside those of attention.

A 3x3 convolution without stride, four stages with one or two blocks each, the channels doubled and the pixels halved
from the second on, the average over all pixels, a classifier.
"""

from __future__ import annotations

from torch import nn

from ...convert.examples.networks import ResidualBlock
from .attention import ImageKind

BLOCKS = {"resnet10": 1, "resnet18": 2}
"""Blocks in each of the four stages; a block has two convolutions, and the first and the last layer make 10 and 18."""
WIDTH = 64
"""Channels of the first stage in the paper's networks."""


def resnet(images: ImageKind, *, blocks: int, width: int = WIDTH) -> nn.Sequential:
    """An untrained network from images [batch, channels, rows, columns] to class scores, ``width`` channels first."""
    layers: list[nn.Module] = [
        nn.Conv2d(images.channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels = width
    for stage in range(4):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(ResidualBlock(channels, width * 2**stage, stride=stride))
            channels = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, images.classes))
