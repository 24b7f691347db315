"""Inference code with exact GELU, for weights that were trained with the tanh form."""

from functools import partial
from pathlib import Path

import torch
from blocks import Attention, Block, FeedForward, Rotary
from editing import edited, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/kyutai-labs/pocket-tts/pull/278",
    kind="ports",
    question="The released inference code and the training code differ by 0.35 % in the backbone: does it matter?",
    truth=Bug("GELU: exact where the weights were trained with tanh", r"act|gelu", ("approximate", "tanh", "none")),
    said="Merged as a correctness fix: a silent mismatch of training and serving that nobody could hear.",
    read="thread",
)


def build(folder: Path) -> Sides:
    """A causal backbone of six layers over frames."""
    width, act = 64, partial(nn.GELU, approximate="tanh")
    layers = [
        Block(
            width,
            nn.LayerNorm,
            Attention(width, 4, rotary=Rotary(width // 4), is_causal=True),
            FeedForward(width, 4 * width, act()),
        )
        for _ in range(6)
    ]
    network = settled(nn.Sequential(*layers, nn.LayerNorm(width)))
    return Sides(network, edited(network, nn.GELU, approximate="none"), (torch.randn(1, 40, width),))
