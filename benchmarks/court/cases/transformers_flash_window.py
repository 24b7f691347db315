"""Local attention that sees one position too many."""

from pathlib import Path

import torch
from blocks import Attention, LanguageModel, Rotary
from editing import edited, settled
from torch import Tensor
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/transformers/issues/39408",
    kind="batches",
    question="One attention kernel counts the window with the query's own position, another without: which is right?",
    truth=Bug("attention: a window of 13 positions for 12", r"attention", ("12", "13")),
    said="Labelled a bug and mended by a later change: the kernel's bounds are inclusive, so one is subtracted.",
    read="excerpt, and the beginning of the change",
    emulated="the kernel: the same network in torch with this window",
)


class Local(Attention):
    """Attention to the last positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, rotary=Rotary(width // heads), bias=False)
        self.window = 12

    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attends, [batch, length, width]."""
        q, k, v = self.projected(x, positions)
        place = torch.arange(x.shape[1])
        distance = place[:, None] - place
        hidden = (distance < 0) | (distance >= self.window)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, torch.finfo(x.dtype).min)
        found: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        return found


def build(folder: Path) -> Sides:
    """40 positions."""
    network = LanguageModel(64, 2)
    for block in network.blocks:
        block.attention = Local(64, 4)
    network = settled(network)
    return Sides(network, edited(network, Local, window=13), (torch.randint(97, (1, 40)),))
