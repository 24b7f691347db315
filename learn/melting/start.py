"""The CNN that is melted where none is given: small, and trained on the data first."""

from __future__ import annotations

from torch import nn


def small_cnn(*, channels: int = 1, classes: int = 10) -> nn.Module:
    """Four 3 x 3 convolutions with batch normalisation, 16 to 48 channels wide, for images of any size.

    Args:
        channels: Channels of an image.
        classes: How many scores.

    Returns:
        A network from images [batch, channels, rows, columns] to scores [batch, classes], untrained.
    """
    widths, strides = (16, 32, 48, 48), (1, 2, 1, 1)
    layers: list[nn.Module] = []
    for before, width, stride in zip((channels, *widths), widths, strides, strict=False):
        convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
