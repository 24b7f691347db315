"""Products in bfloat16 that are cut, in a rotation."""

from pathlib import Path

import torch
from blocks import LanguageModel, Rotary
from editing import black_box, replaced, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import cut

CASE = Case(
    thread="https://github.com/triton-lang/triton/issues/11217",
    kind="one-sided",
    question="A rotary kernel in bfloat16 is further from float32 on one vendor's chips than in torch",
    truth=Bug("multiplication: bfloat16 products cut, not rounded", r"rotary|mul", ("bias",)),
    said="Labelled a bug and closed: products went through an instruction that drops bits; additions did not.",
    read="excerpt",
    emulated="the chip: products cut, sums rounded, called as a black box",
)


class Cut(nn.Module):
    """Rotary positions with such products."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotates halves, [batch, heads, length, head_dim]."""
        cos, sin = self.rotary.angles(x, positions)
        a, b = x.chunk(2, -1)

        def times(x: Tensor, y: Tensor) -> Tensor:
            return cut(x.float() * y.float())

        return torch.cat((times(a, cos) - times(b, sin), times(b, cos) + times(a, sin)), -1)


def build(folder: Path) -> Sides:
    """Three blocks in bfloat16."""
    network = settled(LanguageModel(64, 3)).bfloat16()
    return Sides(network, black_box(replaced(network, Rotary, Cut)), (torch.randint(97, (1, 40)),))
