"""A round trip through float16 that fusion leaves out."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/183761",
    kind="compilers",
    question="A compiled chain of where, full_like, cast and add sums to 62.6470, eager to 62.6429",
    truth=Rounding("a cast to float16 and back is left out", "float16", "float16"),
    said="Closed: intended, such pairs of casts may be left out; with the flag that emulates them, results are equal.",
    read="excerpt",
    emulated="inductor: the chain without the casts, called as a black box",
)


class Chain(nn.Module):
    """Elements of a tensor or a constant, through float16, added to another and summed."""

    def __init__(self, *, is_cast: bool) -> None:
        super().__init__()
        self.is_cast = is_cast

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The elements, [64], and their sum."""
        chosen = torch.where(x > 0, x, torch.full_like(x, 0.1))
        total = (chosen.half().to(x.dtype) if self.is_cast else chosen) + y
        return total, total.sum()


def build(folder: Path) -> Sides:
    """64 elements in float32."""
    other = Chain(is_cast=False)
    return Sides(Chain(is_cast=True).eval(), lambda x, y: other(x, y), (torch.randn(64), torch.rand(64)))
