"""A factor that was cut to bfloat16 on its way to the chip."""

from pathlib import Path

import torch
from blocks import Block, FeedForward, FusedAttention
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/tenstorrent/tt-metal/pull/44810",
    kind="one-sided",
    question="A tensor in bfloat16 times a number is not the number's product: is the number rounded?",
    truth=Bug("multiplication by a number: 0.298828125 for 0.3, cut and not rounded", r"scale", ("0.298",)),
    said="Merged: numbers are rounded now; they had been cut because of a regression that nobody had explained.",
    read="excerpt",
    emulated="the chip: the same network in torch with the number that it gets",
)


class Scale(nn.Module):
    """Multiplies by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.3

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        return x * self.factor


class Scaled(nn.Module):
    """A branch that is scaled."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch, self.scale = branch, Scale()

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        found: Tensor = self.scale(self.branch(x))
        return found


def build(folder: Path) -> Sides:
    """Four blocks in bfloat16, whose result is the stream."""
    width = 64
    blocks = (
        Block(
            width,
            nn.LayerNorm,
            Scaled(FusedAttention(width, 4)),
            Scaled(FeedForward(width, 4 * width, nn.GELU())),
        )
        for _ in range(4)
    )
    network = settled(nn.Sequential(*blocks)).bfloat16()
    return Sides(network, edited(network, Scale, factor=0.298828125), (torch.randn(2, 24, width).bfloat16(),))
