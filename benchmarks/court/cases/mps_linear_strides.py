"""A linear layer whose weight is a transposed view."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/TransformerLensOrg/TransformerLens/issues/1178",
    kind="batches",
    question="GPT-2 gives wrong answers on Apple's GPUs, without an error",
    truth=Bug("linear: a weight that is not contiguous is read as if it were", r"linear|out", ("contiguous",)),
    said="F.linear was wrong for such weights in torch 2.8; it is mended in 2.9, and the library warns.",
    read="thread",
    emulated="MPS: the weight's memory read in order, called as a black box",
)


class Output(nn.Module):
    """Attention's output layer, with its weight as [head, head_dim, width]."""

    def __init__(self, heads: int, width: int, *, is_read_in_order: bool) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(width, width) / width**0.5), nn.Parameter(torch.randn(width))
        self.is_read_in_order = is_read_in_order

    def forward(self, z: Tensor) -> Tensor:
        """[batch, length, width] of heads' results, [batch, length, heads, head_dim]."""
        weight = self.w if self.is_read_in_order else self.w.T
        return F.linear(z.flatten(-2), weight, self.b)


def build(folder: Path) -> Sides:
    """Four heads of 16."""
    network, other = (Output(4, 64, is_read_in_order=each).eval() for each in (False, True))
    other.load_state_dict(network.state_dict())
    return Sides(network, lambda z: other(z), (torch.randn(2, 12, 4, 16),))
