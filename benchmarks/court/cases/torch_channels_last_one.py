"""A convolution of one channel with weights in another memory format."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/82060",
    kind="batches",
    question="A convolution of one channel changes when its weights are channels last; with more channels it does not",
    truth=Bug("convolution: its result is written in one layout and read in another", r"conv|^0$", ("layout",)),
    said="Labelled a silent error of high priority, and fixed: one channel looks contiguous in both formats.",
    read="thread",
    emulated="torch 1.12: the result in channels-first order, read as channels last, called as a black box",
)


def build(folder: Path) -> Sides:
    """One layer, as in the thread."""
    network = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1, bias=False)).eval()

    def other(x: Tensor) -> Tensor:
        y = network(x)
        return y.contiguous().view(y.shape[0], *y.shape[2:], y.shape[1]).permute(0, 3, 1, 2)

    return Sides(network, other, (torch.randn(1, 1, 40, 40),))
