"""An eps that half precision cannot hold."""

from functools import partial
from pathlib import Path

import torch
from blocks import FeedForward
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/86580",
    kind="compilers",
    question="A small eps of LayerNorm is exported as 0 in float16: can that be mended?",
    truth=Bug("layer norm: eps 0 for 1e-8", r"norm", ("eps", "1e-08", "0")),
    said="A pull request adds casts, since torch keeps eps and the computation in higher precision.",
    read="thread",
    emulated="the exported file: its operations in torch, in float16, called as a black box",
)


class Net(nn.Module):
    """A norm between two layers, without bias so that padding stays 0."""

    def __init__(self, width: int, norm: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = (
            nn.Linear(width, width, bias=False),
            norm,
            FeedForward(width, width, nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, width]."""
        return self.outer(self.norm(self.inner(x)))


def _exported(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """The file's operations: mean, difference, square, mean, eps, root, quotient, each in float16."""
    away = x - x.mean(-1, keepdim=True)
    eps = torch.tensor(norm.eps, dtype=torch.float16)
    return away / ((away * away).mean(-1, keepdim=True) + eps).sqrt() * norm.weight + norm.bias


def build(folder: Path) -> Sides:
    """Eight tokens, the last two of them padding."""
    network = Net(32, nn.LayerNorm(32, eps=1e-8)).eval().half()
    x = torch.randn(1, 8, 32).half()
    x[:, 6:] = 0
    written = partial(_exported, network.norm)
    return Sides(network, lambda x: network.outer(written(network.inner(x))), (x,))
