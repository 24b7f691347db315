"""Attention whose scores are divided by the root of all channels."""

from functools import partial
from pathlib import Path

import torch
from blocks import Attention, VisionTransformer
from editing import edited, settled
from torch import Tensor
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/omihub777/ViT-CIFAR/pull/12",
    kind="ports",
    question="Scores are divided by the root of the model's width, and not of a head's: is that meant?",
    truth=Bug("attention: scores times 0.125 for 0.25", r"attention", ("0.25", "0.125")),
    said="Closed; both the report and a review quote the paper, which divides by the root of a head's width.",
    read="excerpt",
)


class Scaled(Attention):
    """Attention with a factor of its own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.scale = (width // heads) ** -0.5

    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attends, [batch, length, width]."""
        q, k, v = self.projected(x)
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        found: Tensor = self.out((weights @ v).transpose(1, 2).flatten(-2))
        return found


def build(folder: Path) -> Sides:
    """Four heads of 16 channels."""
    network = settled(partial(VisionTransformer, attention=Scaled)())
    return Sides(network, edited(network, Scaled, scale=64**-0.5), (torch.randn(2, 3, 32, 32),))
