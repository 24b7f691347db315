"""An explicit cast that the compiler removes."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Open, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/181568",
    kind="compilers",
    question="The compiler removes an explicit cast to bfloat16 behind a product: is the cast a boundary?",
    truth=Open("closed, with a way around it; whether removing an explicit cast is an error was not found"),
    said="Labelled high priority, reproduced by a bot, and closed.",
    read="excerpt",
    emulated="inductor: the product without the cast, called as a black box",
)


class Product(nn.Module):
    """A product through bfloat16, and a bias in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(32, 17)), nn.Parameter(torch.randn(17))

    def forward(self, x: Tensor) -> Tensor:
        """[2, 15, 17]."""
        return (x @ self.w).to(torch.bfloat16) + self.b


def build(folder: Path) -> Sides:
    """The thread's sizes."""
    network = Product().eval()
    return Sides(network, lambda x: x @ network.w + network.b, (torch.randn(2, 15, 32),))
