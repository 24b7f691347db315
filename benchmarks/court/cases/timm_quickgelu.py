"""CLIP weights in a network with another GELU."""

from pathlib import Path

import torch
from blocks import QuickGELU, VisionTransformer
from editing import replaced, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/pytorch-image-models/issues/2031",
    kind="ports",
    question="OpenAI's CLIP gives other features in timm than in open_clip, other weights do not",
    truth=Bug("activation: GELU where the weights want QuickGELU", r"act|gelu", ("gelu",)),
    said="Labelled a bug and fixed: the loader did not switch to QuickGELU for these weights.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """The image tower in open_clip and in timm."""
    network = settled(VisionTransformer(activation=QuickGELU))
    return Sides(network, replaced(network, QuickGELU, lambda _: nn.GELU()), (torch.randn(2, 3, 32, 32),))
