"""A product in bfloat16, whole and in slices."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/jax-ml/jax/issues/18165",
    kind="batches",
    question="A product of slices in bfloat16 is not the slice of the product, by up to 0.125",
    truth=Rounding("sums in another order, rounded once", "bfloat16", "bfloat16"),
    said="Neither is incorrect: the error is what bfloat16 gives, and other kernels round elsewhere.",
    read="excerpt",
    emulated="JAX's kernel: sums of four blocks in float32, rounded once, called as a black box",
)


def build(folder: Path) -> Sides:
    """A linear layer of 512 to 256 numbers."""
    network = nn.Sequential(nn.Linear(512, 256, bias=False)).eval()
    with torch.no_grad():
        network[0].weight.normal_()
    network.bfloat16()

    def other(x: Tensor) -> Tensor:
        blocks = zip(x.split(128, -1), network[0].weight.split(128, -1), strict=True)
        return sum((a.float() @ b.float().T for a, b in blocks), torch.zeros(1)).bfloat16()

    return Sides(network, other, (torch.randn(64, 512).bfloat16(),))
