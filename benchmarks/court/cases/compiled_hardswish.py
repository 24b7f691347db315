"""A direction of numbers that are zero."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/181693",
    kind="compilers",
    question="Hardswish is wrong by 1 and more when compiled: a silent error of high priority?",
    truth=Rounding("means of centred numbers are noise, which is divided by its own length", is_amplified=True),
    said="Closed; a user finds differences of 2e-8 in front of the division, and 1.07 behind it, whatever follows.",
    read="excerpt",
)


class Chain(nn.Module):
    """Instance norm, mean, direction, product, hardswish, direction."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.pool, self.act = nn.InstanceNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Hardswish()

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, height, width]."""
        direction = F.normalize(self.pool(self.norm(x)), dim=0)
        return F.normalize(self.act(direction * x), dim=0)


def build(folder: Path) -> Sides:
    """The sizes of a similar report; the compiler's decompositions, without its code generator."""
    network = Chain().eval()
    compiled = torch.compile(network, backend="aot_eager_decomp_partition")
    return Sides(network, compiled, (torch.randn(4, 3, 10, 12),))
