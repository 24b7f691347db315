"""Two layouts of rotary positions, with weights that were permuted to match."""

from pathlib import Path

import torch
from blocks import Attention, LanguageModel, Rotary
from editing import edited, settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/naklecha/llama3-from-scratch/issues/20",
    kind="ports",
    question="transformers rotates halves and the original rotates neighbours: why do the results agree, or not?",
    truth=Rounding("rows of the projections are permuted, so it is the same function"),
    said="The converter permutes queries and keys for this layout; the asker understood.",
    read="excerpt",
)


def permuted(weight: Tensor, heads: int) -> nn.Parameter:
    """Rows of each head, even ones first."""
    rows = weight.detach().unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return nn.Parameter(rows.clone())


def build(folder: Path) -> Sides:
    """A network that rotates neighbours, and its conversion, which rotates halves."""
    network = settled(LanguageModel(64, 3, 4, is_interleaved=True))
    other = edited(network, Rotary, is_interleaved=False)
    for part in other.modules():
        if isinstance(part, Attention):
            part.q.weight, part.k.weight = permuted(part.q.weight, 4), permuted(part.k.weight, 4)
    return Sides(network, other, (torch.randint(97, (2, 40)),))
