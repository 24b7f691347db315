"""A group norm of equal numbers, and the logarithm of what is left."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/181696",
    kind="compilers",
    question="Eval-mode batch norm and group norm are wrong by 1.0 and more when compiled: a bug?",
    truth=Rounding("the deviation of equal numbers is noise, which the logarithm enlarges", is_amplified=True),
    said="Open; bisected to the decomposition of group norm; a triager finds it hard to tell from amplified noise.",
    read="excerpt, and notes of an earlier reading",
)


class Chain(nn.Module):
    """Batch norm, ELU, group norm with a group a channel, clamp, logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.bn, self.gn = nn.BatchNorm1d(10), nn.GroupNorm(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 10, length]."""
        return torch.log(self.gn(nn.functional.elu(self.bn(x))).clamp(min=1e-8))


def build(folder: Path) -> Sides:
    """Ones, and slightly different channels; the compiler's decompositions, without its code generator."""
    network = Chain().eval()
    compiled = torch.compile(network, backend="aot_eager_decomp_partition")
    return Sides(network, compiled, (torch.ones(6, 10, 12) * torch.linspace(0.7, 1.3, 10)[:, None],))
