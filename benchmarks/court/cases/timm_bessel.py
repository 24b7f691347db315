"""A ConvNeXt whose norms divide by one channel less."""

from functools import partial
from pathlib import Path

import torch
from blocks import WrittenNorm, channel_norm, convnext
from editing import edited, settled
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/pytorch-image-models/issues/1090",
    kind="ports",
    question="timm's ConvNeXt predicts slightly otherwise than the official code with the same weights",
    truth=Bug(
        "layer norm over channels: variance with Bessel's correction (1 for 0)",
        r"norm|^1 |1 \(",
        ("correction", "0", "1"),
    ),
    said="Fixed at once; the effect on accuracy was insignificant, no more than another version of torch has.",
    read="thread",
)


def build(folder: Path) -> Sides:
    """Both norms are written out, the official one with the biased variance."""
    network = settled(convnext(64, norm=partial(channel_norm, correction=0)))
    return Sides(network, edited(network, WrittenNorm, correction=1), (torch.randn(2, 3, 64, 64),))
