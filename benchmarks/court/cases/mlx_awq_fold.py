"""Scales that are moved from a layer into the norm before it."""

import copy
from pathlib import Path

import torch
from blocks import LanguageModel
from editing import settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/Blaizzy/mlx-vlm/issues/1722",
    kind="ports",
    question="A test that folding keeps the function fails at 1e-4: is the folding wrong?",
    truth=Rounding("scales other than powers of two round weights anew"),
    said="Open; the reporter measured 2e-16 in float64 and 1.2e-7 on a CPU: only a GPU's products fail the test.",
    read="excerpt",
)


def folded(network: LanguageModel) -> LanguageModel:
    """A copy whose norms are scaled by 0.3 to 3, and the layers behind them by the inverse."""
    other = copy.deepcopy(network)
    with torch.no_grad():
        for block in other.blocks:
            for norm, layers in (
                (block.norm1, (block.attention.q, block.attention.k, block.attention.v)),
                (block.norm2, (block.mlp.gate, block.mlp.up)),
            ):
                scale = 10 ** torch.empty_like(norm.weight).uniform_(-0.5, 0.5)
                norm.weight.mul_(scale)
                for layer in layers:
                    layer.weight.div_(scale)
    return other


def build(folder: Path) -> Sides:
    """A language model, and the same folded, both on the CPU."""
    network = settled(LanguageModel(64, 3))
    return Sides(network, folded(network), (torch.randint(97, (2, 32)),))
