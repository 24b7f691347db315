"""A cache that counts a token before the upper layers have seen it."""

import copy
from pathlib import Path
from typing import Any

import torch
from blocks import After, LanguageModel
from editing import settled
from torch import Tensor
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/fla-org/flash-linear-attention/issues/766",
    kind="batches",
    question="Decoding with a cache is not equal to a full pass: is that rounding?",
    truth=Bug("rotary positions above the first layer: one too many in every step", r"rotary", ("position|offset",)),
    said="Labelled a bug, and closed; the first layer's write raises the count that the others read in the same step.",
    read="excerpt",
    emulated="the library: decoding one by one in torch with this count, called as a black box",
)


def build(folder: Path) -> Sides:
    """A prompt of 16 tokens, 8 more, and three layers."""
    network = settled(LanguageModel(64, 3))
    other = copy.deepcopy(network)
    for block in list(other.blocks)[1:]:
        own = block.attention.projected

        def late(x: Tensor, positions: Tensor, own: Any = own) -> Any:
            return own(x, positions + 1 if x.shape[1] == 1 else positions)

        block.attention.projected = late
    return Sides(After(network, 16).eval(), lambda ids: other.with_cache(ids, 16), (torch.randint(97, (2, 24)),))
