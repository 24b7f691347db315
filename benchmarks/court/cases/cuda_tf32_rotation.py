"""Points that are moved and moved back, on a GPU."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Rounding, Sides
from units import tf32, with_products

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/79270",
    kind="precision",
    question="Points of 500 units are off by 0.27 after a product with the identity, on a GPU only: is it acceptable?",
    truth=Rounding("products of matrices in TF32, their default then", "tf32"),
    said="Closed with the label TF32.",
    read="excerpt",
    emulated="the GPU: operands rounded to TF32, products summed in float32, called as a black box",
)


class There(nn.Module):
    """Moves points by (0, 0, 1000) and rotates, and the other way back."""

    def __init__(self) -> None:
        super().__init__()
        self.r, self.t = nn.Parameter(torch.eye(3)), nn.Parameter(torch.tensor([0.0, 0.0, 1e3]))

    def forward(self, points: Tensor) -> Tensor:
        """[1024, 3]."""
        away = (self.r.T @ (points - self.t).T).T
        return (self.r @ away.T).T + self.t


def build(folder: Path) -> Sides:
    """The thread's points."""
    network = There().eval()
    return Sides(network, with_products(network, tf32), (500 * torch.randn(1024, 3),))
