"""The two networks whose layers are measured, untrained: the time of a convolution does not depend on its weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CLASSES = 1000

# blocks, middle channels and stride of each stage: He et al., arXiv 1512.03385, table 1
_RESNET50_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
_EXPANSION = 4

# expansion, channels, blocks and stride of each stage: Sandler et al., arXiv 1801.04381, table 2
_MOBILENETV2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def resnet50() -> nn.Module:
    """ResNet-50, with the stride in the 3x3 convolutions as is usual today.

    Returns:
        A network from images [batch, 3, rows, columns] to scores [batch, 1000].
    """
    layers: list[nn.Module] = [*_normed(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    channels = 64
    for blocks, width, first_stride in _RESNET50_STAGES:
        out_channels = width * _EXPANSION
        for stride in (first_stride, *[1] * (blocks - 1)):
            narrow = [*_normed(channels, width, 1), nn.ReLU(), *_normed(width, width, 3, stride=stride), nn.ReLU()]
            residual = nn.Sequential(*narrow, *_normed(width, out_channels, 1))
            same = stride == 1 and channels == out_channels
            shortcut = nn.Identity() if same else nn.Sequential(*_normed(channels, out_channels, 1, stride=stride))
            layers += [_Sum(residual, shortcut), nn.ReLU()]
            channels = out_channels
    return nn.Sequential(*layers, *_classifier(channels))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 of width 1.

    Returns:
        A network from images [batch, 3, rows, columns] to scores [batch, 1000].
    """
    layers: list[nn.Module] = [*_normed(3, 32, 3, stride=2), nn.ReLU6()]
    channels = 32
    for expansion, width, blocks, first_stride in _MOBILENETV2_STAGES:
        for stride in (first_stride, *[1] * (blocks - 1)):
            hidden = channels * expansion
            widened = [] if expansion == 1 else [*_normed(channels, hidden, 1), nn.ReLU6()]
            filtered = [*_normed(hidden, hidden, 3, stride=stride, groups=hidden), nn.ReLU6()]
            block = nn.Sequential(*widened, *filtered, *_normed(hidden, width, 1))
            layers.append(_Sum(block, nn.Identity()) if stride == 1 and channels == width else block)
            channels = width
    return nn.Sequential(*layers, *_normed(channels, 1280, 1), nn.ReLU6(), *_classifier(1280))


class _Sum(nn.Module):
    """Adds what two modules of the same shape give for the same input."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the two modules' sum."""
        return torch.add(self.one(x), self.other(x))


def _normed(in_channels: int, out_channels: int, side: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias that keeps the size but for its stride, and a normalisation."""
    conv = nn.Conv2d(in_channels, out_channels, side, stride=stride, padding=side // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out_channels)]


def _classifier(channels: int) -> list[nn.Module]:
    """Maps features [batch, channels, rows, columns] of any size to scores [batch, 1000]."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, _CLASSES)]
