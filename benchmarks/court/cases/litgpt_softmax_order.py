"""Two orders of a router's steps that are the same function."""

from pathlib import Path

import torch
from blocks import LanguageModel
from cases.mlxcel_router import Mixture
from editing import edited, settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/Lightning-AI/litgpt/issues/1286",
    kind="ports",
    question="One Mixtral takes the softmax before it chooses experts, another afterwards: do outputs differ?",
    truth=Rounding("weights are normalised after the choice, so it is the same function in another order"),
    said="It follows the authors' reference; there seems to be no difference, at least in float32.",
    read="thread",
)


class Router(nn.Module):
    """Weights of two experts, which sum to 1."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.linear, self.is_softmax_first = nn.Linear(width, experts, bias=False), True

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, experts]."""
        logits = self.linear(x)
        if self.is_softmax_first:
            weights, chosen = logits.softmax(-1).topk(2)
            weights = weights / weights.sum(-1, keepdim=True)
        else:
            weights, chosen = logits.topk(2)
            weights = weights.softmax(-1)
        return torch.zeros_like(logits).scatter(-1, chosen, weights)


def build(folder: Path) -> Sides:
    """Eight experts in each of two blocks."""
    network = LanguageModel(48, 2)
    for block in network.blocks:
        block.mlp = Mixture(48, 64)
        block.mlp.router = Router(48, 8)
    network = settled(network)
    return Sides(network, edited(network, Router, is_softmax_first=False), (torch.randint(97, (2, 24)),))
