"""A vision transformer with JAX's weights, before its eps was mended."""

from functools import partial
from pathlib import Path

import torch
from blocks import FusedAttention, VisionTransformer
from editing import edited, replaced, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/kornia/kornia/pull/2786",
    kind="ports",
    question="kornia's ViT with JAX's weights: why does it not give timm's features?",
    truth=Bug("layer norm: eps 1e-5 for 1e-6", r"norm", ("eps", "1e-06", "1e-05")),
    said="Merged; JAX's eps was needed for the weights to work.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """timm's fused attention, and kornia's own with separate projections; features are as large as theirs."""
    make = partial(VisionTransformer, norm=partial(nn.LayerNorm, eps=1e-6), attention=FusedAttention, depth=12)
    network = settled(make())
    with torch.no_grad():
        network.norm.weight.mul_(20)
    own = replaced(network, FusedAttention, FusedAttention.split)
    return Sides(network, edited(own, nn.LayerNorm, eps=1e-5), (torch.randn(1, 3, 32, 32),))
