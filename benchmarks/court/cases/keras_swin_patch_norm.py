"""A port in which a single norm, the first, has its framework's default eps."""

from pathlib import Path

import torch
from blocks import Attention, Block, FeedForward
from editing import black_box, edited, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/keras-team/keras-hub/pull/2298",
    kind="ports",
    question="A Swin transformer in Keras drifts away from the reference: where does it begin?",
    truth=Bug("layer norm of the patch embedding: eps 1e-3 for 1e-5", r"^2|patch", ("eps", "1e-05", "0.001")),
    said="Found layer by layer: one norm had Keras' default; afterwards the mean difference is 2e-6.",
    read="excerpt",
    emulated="Keras: the same network in torch, called as a black box",
)


class ToTokens(nn.Module):
    """Pixels of a map as tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, pixels, channels]."""
        return x.flatten(2).transpose(1, 2)


def build(folder: Path) -> Sides:
    """Patches of 4x4 pixels, their norm, and three blocks."""
    width = 48
    blocks = [
        Block(width, nn.LayerNorm, Attention(width, 4), FeedForward(width, 2 * width, nn.GELU())) for _ in range(3)
    ]
    network = settled(nn.Sequential(nn.Conv2d(3, width, 4, 4), ToTokens(), nn.LayerNorm(width), *blocks))
    other = edited(network, nn.LayerNorm, where=r"^2$", eps=1e-3)
    return Sides(network, black_box(other), (torch.randn(1, 3, 28, 28),))
