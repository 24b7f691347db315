"""Attention whose scores are divided by the root of all channels."""

from pathlib import Path

import torch
from blocks import Attention, LanguageModel
from editing import edited, settled
from torch import Tensor
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/karpathy/ng-video-lecture/pull/6",
    kind="ports",
    question="Scores are divided by the root of the input's channels, and not of a head's: is that meant?",
    truth=Bug("attention: scores times 0.125 for 0.25", r"attention", ("0.25", "0.125")),
    said="Merged: the author agrees.",
    read="thread",
)


class Scaled(Attention):
    """Causal attention with a factor of its own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, bias=False)
        self.scale = (width // heads) ** -0.5

    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attends, [batch, length, width]."""
        q, k, v = self.projected(x)
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) * self.scale).masked_fill(ahead, float("-inf"))
        found: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        return found


def build(folder: Path) -> Sides:
    """Four heads of 16 channels; the network is a later one than the lecture's."""
    network = LanguageModel(64, 2)
    for block in network.blocks:
        block.attention = Scaled(64, 4)
    network = settled(network)
    return Sides(network, edited(network, Scaled, scale=64**-0.5), (torch.randint(97, (2, 24)),))
