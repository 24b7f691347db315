"""Additions in bfloat16 that round towards minus infinity."""

import copy
from pathlib import Path

import torch
from blocks import Attention, Block, FeedForward
from editing import black_box, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import floor

CASE = Case(
    thread="https://github.com/Xilinx/mlir-aie/pull/3587",
    kind="one-sided",
    question="Elementwise bfloat16 additions match NumPy in 1,538 of 2,046 elements, and are never too large",
    truth=Bug("addition: rounded towards minus infinity", r"add|^[0-3]\b", ("bias",)),
    said="With rounding to nearest even all 2,046 match; closed unmerged, but the same is merged for products (#2984).",
    read="excerpt",
    emulated="the chip: additions in float32, rounded down to bfloat16, called as a black box",
)


def add(x: Tensor, y: Tensor) -> Tensor:
    """The chip's addition."""
    return floor(x.float() + y.float())


def build(folder: Path) -> Sides:
    """Four blocks in bfloat16, whose result is the stream itself."""
    blocks = [Block(64, nn.LayerNorm, Attention(64, 4), FeedForward(64, 128, nn.GELU())) for _ in range(4)]
    network = settled(nn.Sequential(*blocks)).bfloat16()
    other = copy.deepcopy(network)
    for block in other:
        assert isinstance(block, Block)
        block.add = add
    return Sides(network, black_box(other), (torch.randn(1, 24, 64).bfloat16(),))
