"""A linear layer and a convolution of one pixel."""

from pathlib import Path

import torch
from editing import replaced
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/156154",
    kind="ports",
    question="Conv2d of 1x1 and Linear with the same weights give other numbers if the batch is larger than one",
    truth=Rounding("other algorithms for the same sums"),
    said="Closed: algorithms that are equal for real numbers need not be so for floating-point ones.",
    read="thread",
)


class Pointwise(nn.Module):
    """A linear layer as a convolution."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.conv = nn.Conv2d(linear.in_features, linear.out_features, 1)
        self.conv.weight = nn.Parameter(linear.weight.detach()[..., None, None].clone())
        self.conv.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outer]."""
        found: Tensor = self.conv(x[..., None, None])
        return found.flatten(1)


def build(folder: Path) -> Sides:
    """Three layers, where the thread has one, and eight rows."""
    network = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 32)).eval()
    return Sides(network, replaced(network, nn.Linear, Pointwise), (torch.randn(8, 64),))
