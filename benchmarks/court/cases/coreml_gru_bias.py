"""A GRU with one bias in place of two."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/apple/coremltools/issues/1124",
    kind="ports",
    question="A GRU converts without an error, and gives other numbers",
    truth=Bug("GRU: the hidden bias of the candidate is outside the reset gate", r"gru", ("bias",)),
    said="The formulas differ in where the biases are applied; the format has one bias only (later it got a second).",
    read="excerpt",
    emulated="Core ML: its formula, from the thread, called as a black box",
)


def build(folder: Path) -> Sides:
    """Twelve steps of one layer."""
    network = nn.GRU(16, 24, batch_first=True).eval()

    def other(x: Tensor) -> tuple[Tensor, Tensor]:
        h, found = torch.zeros(len(x), 24), []
        bias = (network.bias_ih_l0 + network.bias_hh_l0).chunk(3)
        for step in x.unbind(1):
            inner, outer = (step @ network.weight_ih_l0.T).chunk(3, -1), (h @ network.weight_hh_l0.T).chunk(3, -1)
            reset, update = (torch.sigmoid(inner[place] + outer[place] + bias[place]) for place in (0, 1))
            candidate = torch.tanh(inner[2] + reset * outer[2] + bias[2])
            h = (1 - update) * candidate + update * h
            found.append(h)
        return torch.stack(found, 1), h[None]

    return Sides(network, other, (torch.randn(2, 12, 16),))
