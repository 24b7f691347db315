"""Activations that are all cut to bfloat16 when they are stored."""

import copy
from pathlib import Path
from typing import Any

import torch
from blocks import Block, LanguageModel, RMSNorm
from editing import black_box, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import cut

CASE = Case(
    thread="https://github.com/mmastrac/diffgemma/pull/18",
    kind="one-sided",
    question="Norms that must give a root mean square of 1 give 0.9972",
    truth=Bug("every stored activation: float32 cut to bfloat16, not rounded", r"norm|embedding|block", ("bias",)),
    said="Merged: stores round to nearest; parity of CPU and GPU had not shown it, as both cut.",
    read="thread",
    emulated="the engine: float32 with every layer's result cut, called as a black box",
)


def _stored(module: nn.Module, inputs: Any, result: Tensor) -> Tensor:
    return cut(result).float()


def build(folder: Path) -> Sides:
    """Four blocks in bfloat16."""
    network = settled(LanguageModel(64, 4)).bfloat16()
    other = copy.deepcopy(network).float()
    for part in other.modules():
        if isinstance(part, (nn.Linear, nn.Embedding, nn.SiLU, RMSNorm)):
            part.register_forward_hook(_stored)
        if isinstance(part, Block):
            part.add = lambda x, y: cut(x + y).float()
    engine = black_box(other)
    return Sides(network, lambda ids: engine(ids).bfloat16(), (torch.randint(97, (1, 24)),))
