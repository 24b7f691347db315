"""A residual stream that is cut to bfloat16 in every addition."""

import copy
from pathlib import Path

import torch
from blocks import Block, LanguageModel
from editing import black_box, settled
from torch import Tensor
from truth import Bug, Case, Sides
from units import cut

CASE = Case(
    thread="https://github.com/ROCm/aiter/issues/5151",
    kind="one-sided",
    question="Every call is off by one unit in the last place at most; after 72 calls the stream has shrunk by 9 %",
    truth=Bug("addition of the residual: float32 cut to bfloat16, not rounded", r"add|block", ("bias",)),
    said="Open; the reporter shows the line that shifts bits, and results that are its truncation bit for bit.",
    read="thread",
    emulated="the kernel: additions in float32, lower 16 bits dropped, called as a black box",
)


def add(x: Tensor, y: Tensor) -> Tensor:
    """The kernel's addition."""
    return cut(x.float() + y.float())


def build(folder: Path) -> Sides:
    """36 blocks with two additions each."""
    network = settled(LanguageModel(32, 36, 2)).bfloat16()
    other = copy.deepcopy(network)
    for block in other.blocks:
        assert isinstance(block, Block)
        block.add = add
    return Sides(network, black_box(other), (torch.randint(97, (1, 16)),))
