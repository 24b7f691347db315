"""A recurrent network whose products are in bfloat16."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Rounding, Sides
from units import bfloat16, with_products

CASE = Case(
    thread="https://github.com/jax-ml/jax/issues/16349",
    kind="precision",
    question="Two rows at once and one after the other have products that differ by 2 % on a TPU, and not elsewhere",
    truth=Rounding("products of matrices are in bfloat16 by default", "bfloat16"),
    said="Closed as most likely intended: a single row is multiplied in full float32, a matrix is not.",
    read="excerpt",
    emulated="the TPU: operands rounded to bfloat16, products summed in float32, called as a black box",
)


class Tagger(nn.Module):
    """Classes of the steps of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(24, 48, batch_first=True), nn.Linear(48, 12)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, 12]."""
        found: Tensor = self.head(self.gru(x)[0])
        return found


def build(folder: Path) -> Sides:
    """Products of a recurrent network, where the thread has one product."""
    network = Tagger().eval()
    return Sides(network, with_products(network, bfloat16), (torch.randn(2, 16, 24),))
