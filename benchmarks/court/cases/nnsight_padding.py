"""Prompts whose padding moves their positions."""

from pathlib import Path

import torch
from blocks import Attention, Block, FeedForward
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/ndif-team/nnsight/pull/673",
    kind="batches",
    question="GPT-2 predicts other tokens for the shorter prompts of a batch: is it the batch's rounding?",
    truth=Bug(
        "learned positions: counted from the padding, for the first token", r"positions", ("position|cumsum|arange",)
    ),
    said="Merged: positions come from the mask; nothing had failed, and every shorter prompt was mispredicted.",
    read="excerpt",
)


class Positions(nn.Module):
    """Learned positions of the tokens that a mask shows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.is_from_mask = nn.Embedding(32, width), True

    def forward(self, mask: Tensor) -> Tensor:
        """[batch, length, width]."""
        if self.is_from_mask:
            found: Tensor = self.table((mask.long().cumsum(-1) - 1).clamp(min=0))
            return found
        return self.table(torch.arange(mask.shape[-1])).expand(len(mask), -1, -1)


class Decoder(nn.Module):
    """A language model with learned positions."""

    def __init__(self, words: int = 80, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), Positions(width)
        self.blocks = nn.ModuleList(
            Block(
                width,
                nn.LayerNorm,
                Attention(width, 4, is_causal=True),
                FeedForward(width, 4 * width, nn.GELU(approximate="tanh")),
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits of the last token, [batch, words]; the mask is False at padding."""
        x = self.embedding(ids) + self.positions(mask)
        for block in self.blocks:
            x = block(x, None, mask)
        found: Tensor = self.head(self.norm(x[:, -1]))
        return found


def build(folder: Path) -> Sides:
    """Prompts of 16, 12 and 9 tokens."""
    network = settled(Decoder())
    mask = torch.arange(16) >= 16 - torch.tensor([16, 12, 9])[:, None]
    inputs = torch.randint(80, (3, 16)), mask
    return Sides(network, edited(network, Positions, is_from_mask=False), inputs)
