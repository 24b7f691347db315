"""Squares of a norm that are cut to bfloat16."""

from pathlib import Path

import torch
from blocks import LanguageModel, RMSNorm
from editing import black_box, replaced, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import cut

CASE = Case(
    thread="https://github.com/tenstorrent/tt-metal/issues/57408",
    kind="one-sided",
    question="square(x) and x * x differ in 440 of 1,024 elements, always downwards; norms use the first",
    truth=Bug("square in the norm: float32 cut to bfloat16, not rounded", r"norm|pow|square", ("bias",)),
    said="Open, labelled a bug; the reporter measured a mend after which all elements are rounded correctly.",
    read="excerpt",
    emulated="the chip: squares cut to bfloat16, called as a black box",
)


class StoredSquares(nn.Module):
    """A root mean square norm whose squares are stored in bfloat16."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        y = x.float()
        y = y * torch.rsqrt(cut(y * y).float().mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


def build(folder: Path) -> Sides:
    """Four blocks in bfloat16."""
    network = settled(LanguageModel(64, 4)).bfloat16()
    return Sides(network, black_box(replaced(network, RMSNorm, StoredSquares)), (torch.randint(97, (1, 24)),))
