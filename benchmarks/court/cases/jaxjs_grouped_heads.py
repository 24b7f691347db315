"""Queries that are paired with the wrong keys."""

from pathlib import Path

import torch
from blocks import Attention, LanguageModel, Rotary
from editing import black_box, edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/ekzhang/jax-js/pull/180",
    kind="ports",
    question="Grouped queries were not tested well: which keys belong to which queries?",
    truth=Bug(
        "attention: keys and values are laid out 0 1 0 1 for 0 0 1 1", r"attention", ("repeat|tile|order|permut",)
    ),
    said="Merged: heads of keys must be repeated, and were tiled.",
    read="thread",
    emulated="jax-js (TypeScript): the same network in torch, called as a black box",
)


class Grouped(Attention):
    """Attention with half as many keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, rotary=Rotary(width // heads), is_causal=True, bias=False)
        self.k, self.v = (nn.Linear(width, width // 2, bias=False) for _ in range(2))
        self.is_tiled = False

    def projected(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and keys and values for each of them."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (layer(x).unflatten(-1, (self.heads // 2, -1)).transpose(1, 2) for layer in (self.k, self.v))
        assert self.rotary is not None
        q, k = self.rotary(q, positions), self.rotary(k, positions)
        if self.is_tiled:
            return q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        return q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)


def build(folder: Path) -> Sides:
    """Four heads of queries and two of keys."""
    network = LanguageModel(64, 2)
    for block in network.blocks:
        block.attention = Grouped(64, 4)
    network = settled(network)
    return Sides(network, black_box(edited(network, Grouped, is_tiled=True)), (torch.randint(97, (1, 24)),))
