"""A bottleneck block with its stride in the other convolution."""

from pathlib import Path

import torch
from blocks import Bottleneck, convolution
from editing import black_box, edited, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/FluxML/Metalhead.jl/pull/114",
    kind="ports",
    question="ResNet-50 with torch's weights gives other results in Julia",
    truth=Bug("bottleneck: stride 2 in the 1x1 convolution for the 3x3", r"conv1|conv2", ("stride", "1", "2")),
    said="Merged: the stride belongs to the 3x3 convolution, as in torch.",
    read="excerpt",
    emulated="Flux (Julia): the same network in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """A stem and two bottlenecks."""
    blocks = [Bottleneck(32, 64), Bottleneck(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    images = torch.randn(2, 3, 32, 32)
    network = settled(nn.Sequential(*convolution(3, 32), *blocks), images)
    other = edited(network, nn.Conv2d, where="conv1", stride=(2, 2))
    other = edited(other, nn.Conv2d, where="conv2", stride=(1, 1))
    return Sides(network, black_box(other), (images,))
