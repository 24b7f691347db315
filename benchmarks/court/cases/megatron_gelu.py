"""A GELU whose formula looks wrong."""

from functools import partial
from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import replaced, settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/deepspeedai/Megatron-DeepSpeed/issues/84",
    kind="ports",
    question="The fused GELU has a square where the paper has a cube: is it a bug?",
    truth=Rounding("x is pulled out of the bracket: the same function in another order"),
    said="The asker saw that the two are equal up to rounding, and closed it.",
    read="thread",
)


class Fused(nn.Module):
    """The tanh form with x pulled out."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


def build(folder: Path) -> Sides:
    """A transformer with torch's GELU, and with theirs."""
    network = settled(VisionTransformer(activation=partial(nn.GELU, approximate="tanh")))
    return Sides(network, replaced(network, nn.GELU, lambda _: Fused()), (torch.randn(2, 3, 32, 32),))
