"""Two ways to divide by a scale."""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/ao/pull/229",
    kind="quantised",
    question="Fake quantisation in training and in the library differ in 0.1 % of the elements",
    truth=Rounding(
        "x times the inverse of a scale, and x by the scale, round to other levels at a border", is_amplified=True
    ),
    said="Merged to make both alike: a small source of divergence, not an error of either.",
    read="thread",
)


class FakeQuantised(nn.Module):
    """A linear layer with weights and activations on levels."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.linear, self.by_inverse = nn.Linear(inner, outer), True
        self.scale = nn.Parameter(self.linear.weight.detach().abs().amax(1, keepdim=True) / 7)

    def levels(self, x: Tensor, scale: Tensor, most: int) -> Tensor:
        """Numbers on levels."""
        steps = x * (1 / scale) if self.by_inverse else x / scale
        return steps.round().clamp(-most - 1, most) * scale

    def forward(self, x: Tensor) -> Tensor:
        """[rows, outer]."""
        x = self.levels(x, x.abs().amax(-1, keepdim=True) / 127, 127)
        return nn.functional.linear(x, self.levels(self.linear.weight, self.scale, 7), self.linear.bias)


def build(folder: Path) -> Sides:
    """Three layers of 8-bit activations and 4-bit weights; numbers of few digits, which are often at a border."""
    network = nn.Sequential(
        FakeQuantised(256, 256), nn.ReLU(), FakeQuantised(256, 256), nn.ReLU(), FakeQuantised(256, 64)
    )
    x = (32 * torch.randn(64, 256)).round() / 32
    other = copy.deepcopy(network)
    for layer in other:
        if isinstance(layer, FakeQuantised):
            layer.by_inverse = False
    return Sides(network.eval(), other.eval(), (x,))
