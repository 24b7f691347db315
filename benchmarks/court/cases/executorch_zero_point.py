"""Integers whose zero point is taken off before they are widened."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import convolution
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/executorch/pull/20655",
    kind="quantised",
    question="The reference kernels of a quantised addition and the deployed ones disagree: which are wrong?",
    truth=Bug(
        "dequantisation: the zero point is subtracted in int8, which wraps",
        r"stored|add|quant",
        ("int8|overflow|wrap|convert|type",),
    ),
    said="Merged: the reference was; it widens first now (a scale of biases was mended as well).",
    read="thread; one of the two mistakes is rebuilt",
)


class Stored(nn.Module):
    """Values from 0 on, in 256 steps."""

    def __init__(self, highest: float) -> None:
        super().__init__()
        self.scale, self.zero_point, self.is_wide = highest / 255, -128, True

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        steps = ((x / self.scale).round() + self.zero_point).clamp(-128, 127)
        if self.is_wide:
            return (steps - self.zero_point) * self.scale
        narrow = steps.to(torch.int8) - torch.tensor(self.zero_point, dtype=torch.int8)
        return narrow.to(x.dtype) * self.scale


class Residual(nn.Module):
    """An addition of two stored maps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(*convolution(width, width))
        self.stored1, self.stored2 = Stored(6), Stored(6)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width, height, width]."""
        return F.relu(self.stored1(x) + self.stored2(self.branch(x)))


def build(folder: Path) -> Sides:
    """A small residual network."""
    images = torch.randn(2, 3, 24, 24)
    layers = [*convolution(3, 16), Residual(16), *convolution(16, 16, 3, 2), Residual(16), nn.Conv2d(16, 8, 1)]
    network = settled(nn.Sequential(*layers), images)
    return Sides(network, edited(network, Stored, is_wide=False), (images,))
