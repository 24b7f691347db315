"""A converter that loses a keyword."""

from functools import partial
from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import black_box, edited, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/apple/coremltools/pull/2863",
    kind="ports",
    question="Models with the tanh form of GELU convert without an error, and the converter's own test at 1e-3 passes",
    truth=Bug("GELU: exact where the network has the tanh form", r"act|gelu", ("approximate", "tanh", "none")),
    said="A pull request reads the keyword, which only counted by position; the forms differ by up to 5e-4.",
    read="excerpt",
    emulated="Core ML: the network with exact GELU in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """A vision transformer as SigLIP has it, converted."""
    network = settled(VisionTransformer(activation=partial(nn.GELU, approximate="tanh")))
    return Sides(network, black_box(edited(network, nn.GELU, approximate="none")), (torch.randn(2, 3, 32, 32),))
