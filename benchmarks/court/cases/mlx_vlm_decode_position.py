"""Decoding in which every token stands at position 0."""

from pathlib import Path

import torch
from blocks import After, LanguageModel, Rotary
from editing import settled
from torch import Tensor
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/Blaizzy/mlx-vlm/issues/1983",
    kind="batches",
    question="Prompts and generated tokens should have the same hidden states for the same ids, and have not",
    truth=Bug("rotary positions of generated tokens: always 0, for the length of the cache", r"rotary", ("position",)),
    said="Closed after this report: positions are counted from the step's own ids, without the cache's length.",
    read="excerpt",
    emulated="MLX: decoding one by one in torch with these positions, called as a black box",
)


class FromZero(Rotary):
    """Rotary positions that start anew in every call."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotates queries or keys."""
        return super().forward(x, torch.arange(x.shape[-2]))


def build(folder: Path) -> Sides:
    """A prompt of 16 tokens, and 8 more."""
    network = settled(LanguageModel(64, 2))

    def decoded(ids: Tensor) -> Tensor:
        kept = [block.attention.rotary for block in network.blocks]
        for block in network.blocks:
            block.attention.rotary = FromZero(16)
        try:
            return network.with_cache(ids, 16)
        finally:
            for block, rotary in zip(network.blocks, kept, strict=True):
                block.attention.rotary = rotary

    return Sides(After(network, 16).eval(), decoded, (torch.randint(97, (2, 24)),))
