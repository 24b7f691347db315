"""Rotary frequencies that are rounded before they are multiplied by the position."""

from pathlib import Path

import torch
from blocks import Rotary
from editing import black_box, edited
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/sgl-project/sglang-jax/issues/1472",
    kind="ports",
    question="A bfloat16 model rounds its rotary frequencies first: the phase's error grows with the position",
    truth=Bug("rotary positions: frequencies in bfloat16 for float32", r"rotary", ("bfloat16",)),
    said="Closed by a fix: phases are computed in float32; before, 72 of 128 values were wrong at position 4095.",
    read="thread",
    emulated="JAX: the same network in torch, called as a black box",
)


class Queries(nn.Module):
    """Queries of one layer, rotated."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.heads = nn.Linear(width, width, bias=False), heads
        self.rotary = Rotary(width // heads, start=3840)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, heads, length, head_dim]."""
        found: Tensor = self.rotary(self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        return found


def build(folder: Path) -> Sides:
    """Rotated queries at the last 256 of 4,096 positions, heads of 128 channels, bfloat16: what the thread compares."""
    network = Queries(256, 2).eval().bfloat16()
    other = edited(network, Rotary, frequencies_in=torch.bfloat16)
    return Sides(network, black_box(other), (torch.randn(1, 256, 256).bfloat16(),))
