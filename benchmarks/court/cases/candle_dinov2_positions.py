"""A shortcut that returns the tokens where it should return their positions."""

import copy
from pathlib import Path
from types import MethodType

import torch
from blocks import VisionTransformer
from editing import settled
from torch import Tensor
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/candle/issues/2286",
    kind="ports",
    question="DINOv2 at its native size, where positions need no interpolation: is the shortcut a bug?",
    truth=Bug("addition of positions: the tokens are added to themselves", r"^add|positions", ("positions",)),
    said="Closed after this report: the tokens are doubled in place of getting their positions.",
    read="excerpt",
    emulated="candle (Rust): the same network in torch, called as a black box",
)


def _doubled(self: VisionTransformer, images: Tensor) -> Tensor:
    x = self.embedded(images)
    found: Tensor = self.norm(self.blocks(x + x))
    return found


def build(folder: Path) -> Sides:
    """A vision transformer at the size that its positions are for."""
    network = settled(VisionTransformer())
    other = copy.deepcopy(network)
    other.forward = MethodType(_doubled, other)  # type: ignore[method-assign]
    return Sides(network, lambda x: other(x), (torch.randn(2, 3, 32, 32),))
