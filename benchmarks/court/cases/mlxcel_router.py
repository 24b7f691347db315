"""A mixture of experts whose router normalises only the experts that it chose."""

from pathlib import Path

import torch
from blocks import LanguageModel
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/lablup/mlxcel/pull/391",
    kind="ports",
    question="OLMoE begins sensibly and then drifts, with and without the fused kernel",
    truth=Bug(
        "router: softmax over the two chosen experts, for softmax over all of them", r"gate|router|mlp", ("softmax",)
    ),
    said="Merged: both are equal only if weights are normalised afterwards, which this model's configuration denies.",
    read="excerpt",
    emulated="mlxcel (Rust): the same network in torch with this router",
)


class Router(nn.Module):
    """Weights of the experts, 0 for all but two."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.linear, self.is_over_all = nn.Linear(width, experts, bias=False), True

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, experts]."""
        logits = self.linear(x)
        if self.is_over_all:
            weights, chosen = logits.softmax(-1).topk(2)
        else:
            weights, chosen = logits.topk(2)
            weights = weights.softmax(-1)
        return torch.zeros_like(logits).scatter(-1, chosen, weights)


class Mixture(nn.Module):
    """Experts, all of which are computed."""

    def __init__(self, width: int, hidden: int, experts: int = 8) -> None:
        super().__init__()
        self.router = Router(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, width]."""
        inner = nn.functional.silu(torch.einsum("blw,ewh->belh", x, self.up))
        found = torch.einsum("belh,ehw->blew", inner, self.down)
        return (found * self.router(x)[..., None]).sum(-2)


def build(folder: Path) -> Sides:
    """Eight experts in each of two blocks."""
    network = LanguageModel(48, 2)
    for block in network.blocks:
        block.mlp = Mixture(48, 64)
    network = settled(network)
    return Sides(network, edited(network, Router, is_over_all=False), (torch.randint(97, (2, 24)),))
