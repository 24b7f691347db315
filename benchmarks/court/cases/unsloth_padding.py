"""Prompts in a batch with padding on the left, in bfloat16."""

from pathlib import Path

import torch
from blocks import LanguageModel
from editing import settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides
from units import with_halves

CASE = Case(
    thread="https://github.com/unslothai/unsloth/issues/9708",
    kind="batches",
    question="Batches of 2, 4 and 8 prompts decode to other texts than one prompt at a time",
    truth=Rounding("kernels depend on the batch's shape", "bfloat16", "bfloat16"),
    said="No bug of any one library: bfloat16 and float16 round by the shape of the batch; in float32 all sizes agree.",
    read="excerpt",
    emulated="the GPU's kernels for one row: sums in two halves, each rounded; the CPU's give the same bits",
)
LENGTHS = (13, 10, 15, 16)


class Last(nn.Module):
    """Logits of the last token."""

    def __init__(self, network: LanguageModel) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[batch, VOCABULARY]."""
        found: Tensor = self.network(ids, mask)[:, -1]
        return found


def build(folder: Path) -> Sides:
    """Four prompts, padded, and one by one without padding."""
    network = settled(LanguageModel(64, 4)).bfloat16()
    ids, length = torch.randint(97, (4, 16)), torch.tensor(LENGTHS)[:, None]
    mask = torch.arange(16) >= 16 - length

    def alone(ids: Tensor, mask: Tensor) -> Tensor:
        rows = zip(ids.split(1), LENGTHS, strict=True)
        return torch.cat([network(row[:, -length:])[:, -1] for row, length in rows])

    return Sides(Last(network).eval(), with_halves(alone), (ids, mask))
