"""Norms that leave float32 before their weights are applied."""

from pathlib import Path

import torch
from blocks import LanguageModel
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/google/gemma_pytorch/pull/67",
    kind="ports",
    question="Where does Gemma's norm return to bfloat16, before its weights or after?",
    truth=Bug(
        "root mean square norm: cast to bfloat16 before the weights, for after them",
        r"norm",
        ("cast|convert|float32|bfloat16|type",),
    ),
    said="Merged: the cast is moved to the very end (and that of the embedding's factor, which is not rebuilt).",
    read="thread",
)


class GemmaNorm(nn.Module):
    """A root mean square norm whose weights are added to 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.eps, self.is_cast_last = nn.Parameter(0.3 * torch.randn(width)), 1e-6, True

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        y = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.is_cast_last:
            return (y * (1 + self.weight.to(y.dtype))).to(x.dtype)
        return y.to(x.dtype) * (1 + self.weight)


def build(folder: Path) -> Sides:
    """Four blocks in bfloat16."""
    network = settled(LanguageModel(64, 4, norm=GemmaNorm)).bfloat16()
    return Sides(network, edited(network, GemmaNorm, is_cast_last=False), (torch.randint(97, (1, 32)),))
