"""Two equal images with different strides."""

import copy
from pathlib import Path

import torch
from torch import nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/110387",
    kind="batches",
    question="Two tensors of the same numbers and different strides give different results",
    truth=Rounding("another kernel for another layout"),
    said="No bug: the layout chooses the kernel.",
    read="for docs/same.md, which has this thread",
)


def build(folder: Path) -> Sides:
    """Two convolutions, and the same in channels-last format."""
    network = nn.Sequential(nn.Conv2d(3, 129, 3, padding=1), nn.Conv2d(129, 3, 3, padding=1)).eval()
    other = copy.deepcopy(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Sides(network, other, (torch.randn(1, 3, 32, 32),))
