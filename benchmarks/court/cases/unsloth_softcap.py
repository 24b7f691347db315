"""Logits that a cap does not hold."""

from pathlib import Path

import torch
from blocks import LanguageModel
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/unslothai/unsloth-zoo/pull/593",
    kind="ports",
    question="Gemma's log-probabilities go down to -125 in preference training, and to -31 in supervised training",
    truth=Bug("cap of the logits: tanh is multiplied by the logits, and not by 30", r"softcap", ("30",)),
    said="Merged: one line; afterwards the divergence of the first step falls from 0.24 to 1e-5.",
    read="excerpt",
)


class Softcap(nn.Module):
    """Bounds logits smoothly."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.is_capped = 30.0, True

    def forward(self, logits: Tensor) -> Tensor:
        """Any shape."""
        small = torch.tanh(logits / self.cap)
        return self.cap * small if self.is_capped else logits * small


class Capped(nn.Module):
    """A language model with such logits."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.softcap = LanguageModel(64, 2), Softcap()

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, length, VOCABULARY]."""
        found: Tensor = self.softcap(self.network(ids))
        return found


def build(folder: Path) -> Sides:
    """Logits up to about 120, as theirs."""
    network = settled(Capped())
    with torch.no_grad():
        network.network.head.weight.mul_(60)
    return Sides(network, edited(network, Softcap, is_capped=False), (torch.randint(97, (2, 16)),))
