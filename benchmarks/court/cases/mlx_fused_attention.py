"""A fused kernel for attention, and the same by hand."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling
from torch import Tensor
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/ml-explore/mlx/issues/3585",
    kind="ports",
    question="The fused attention gives incorrect scores: products and softmax by hand differ from it",
    truth=Rounding("the kernel sums in blocks, in another order"),
    said="It is not meant to agree in bits; a maintainer shows that torch's kernel differs as well.",
    read="excerpt",
    emulated="MLX: torch's own kernel, called as a black box",
)


def _by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
    return weights @ v


def build(folder: Path) -> Sides:
    """82 positions, as there, of numbers from -0.5 to 0.5 that rise evenly."""
    numbers = torch.linspace(-0.5, 0.5, 2 * 82 * 8 * 64).view(2, 82, 8, 64).transpose(1, 2)
    network = Calling(_by_hand).eval()
    return Sides(network, lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (numbers, numbers, numbers))
