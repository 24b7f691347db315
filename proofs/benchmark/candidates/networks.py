"""The two networks whose layers are measured, untrained: the time of a convolution does not depend on its weights.

Modules are named as in torchvision, where the same networks come with trained weights.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

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
    """Builds ResNet-50, with the stride in the 3x3 convolutions as is usual today.

    Returns:
        A network from images [batch, 3, rows, columns] to scores [batch, 1000].
    """
    layers: list[tuple[str, nn.Module]] = [
        ("conv1", nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)),
        ("bn1", nn.BatchNorm2d(64)),
        ("relu", nn.ReLU()),
        ("maxpool", nn.MaxPool2d(3, stride=2, padding=1)),
    ]
    channels = 64
    for stage, (blocks, width, stride) in enumerate(_RESNET50_STAGES, start=1):
        strides = (stride, *(1 for _ in range(blocks - 1)))
        inputs = (channels, *(width * _EXPANSION for _ in range(blocks - 1)))
        parts = [Bottleneck(c, width, stride=s) for c, s in zip(inputs, strides, strict=True)]
        layers.append((f"layer{stage}", nn.Sequential(*parts)))
        channels = width * _EXPANSION
    return nn.Sequential(OrderedDict([*layers, *_classifier(channels)]))


def mobilenet_v2() -> nn.Module:
    """Builds MobileNetV2 of width 1.

    Returns:
        A network from images [batch, 3, rows, columns] to scores [batch, 1000].
    """
    features: list[nn.Module] = [_norm_relu6(nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False))]
    channels = 32
    for expansion, width, blocks, stride in _MOBILENETV2_STAGES:
        for block in range(blocks):
            features.append(
                InvertedResidual(channels, width, expansion=expansion, stride=1 if block else stride),
            )
            channels = width
    features.append(_norm_relu6(nn.Conv2d(channels, 1280, 1, bias=False)))
    return nn.Sequential(OrderedDict([("features", nn.Sequential(*features)), *_classifier(1280)]))


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution beside a shortcut, which is a 1x1 convolution where the shape changes.

    Args:
        in_channels: Channels of the input.
        width: Channels in the middle; the output has four times as many.
        stride: Stride of the 3x3 convolution and of the shortcut.
    """

    def __init__(self, in_channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        out_channels = width * _EXPANSION
        self.conv1, self.bn1 = nn.Conv2d(in_channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, in_channels, rows, columns] to [batch, 4 width, ceil(rows / stride), ...]."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class InvertedResidual(nn.Module):
    """Widens by a 1x1 convolution, filters each channel by itself, narrows again; skips where the shape stays.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        expansion: How many times wider the middle is; 1 leaves the first convolution out.
        stride: Stride of the depthwise convolution.
    """

    def __init__(self, in_channels: int, out_channels: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        self.skips = stride == 1 and in_channels == out_channels
        widen = [] if expansion == 1 else [_norm_relu6(nn.Conv2d(in_channels, hidden, 1, bias=False))]
        self.conv = nn.Sequential(
            *widen,
            _norm_relu6(nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False)),
            nn.Conv2d(hidden, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, in_channels, rows, columns] to [batch, out_channels, ceil(rows / stride), ...]."""
        y: Tensor = self.conv(x)
        return x + y if self.skips else y


def _norm_relu6(conv: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU6())


def _classifier(channels: int) -> Sequence[tuple[str, nn.Module]]:
    """Maps features [batch, channels, rows, columns] of any size to scores [batch, 1000]."""
    return (
        ("avgpool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
        ("fc", nn.Linear(channels, _CLASSES)),
    )
