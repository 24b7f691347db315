"""Eight-bit integers that are cut where they must be rounded."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import FusedAttention, VisionTransformer
from editing import edited, replaced, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/sgl-project/sglang-jax/pull/1598",
    kind="one-sided",
    question="Two of three quantisers cast to int8 without rounding first: does it matter?",
    truth=Bug(
        "quantised linear layers: steps are cut towards zero, not rounded",
        r"attention|mlp",
        ("trunc|cut|round|zero|bias",),
    ),
    said="Merged: half of all integers were one step low, so tensors came back smaller.",
    read="excerpt",
    emulated="JAX: the same network in torch with such quantisers",
)


class Int8Linear(nn.Module):
    """A linear layer of 8-bit rows and 8-bit inputs."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias, self.is_rounded = linear.weight, linear.bias, True

    def stored(self, x: Tensor) -> Tensor:
        """Numbers on 255 levels of their row."""
        scale = x.abs().amax(-1, keepdim=True) / 127
        steps = x / scale
        return (steps.round() if self.is_rounded else steps.trunc()) * scale

    def forward(self, x: Tensor) -> Tensor:
        """[..., outer]."""
        return F.linear(self.stored(x), self.stored(self.weight), self.bias)


def build(folder: Path) -> Sides:
    """All linear layers of a transformer."""
    network = settled(VisionTransformer(depth=2, attention=FusedAttention))
    network = replaced(network, nn.Linear, Int8Linear)
    return Sides(network, edited(network, Int8Linear, is_rounded=False), (torch.randn(2, 3, 32, 32),))
