"""A converted network that computes in half precision."""

import copy
from pathlib import Path

import torch
from blocks import cnn
from editing import settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/apple/coremltools/issues/1379",
    kind="precision",
    question="A converted generator's images are worse than PyTorch's: can float32 be had?",
    truth=Rounding("weights and computation in float16 by default", "float16"),
    said="Yes, by compute_precision; the default of this format is float16.",
    read="thread",
    emulated="Core ML: the network in float16 in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """A CNN."""
    images = torch.randn(2, 3, 32, 32)
    network = settled(cnn(32, 6), images)
    half = copy.deepcopy(network).half()
    return Sides(network, lambda x: half(x.half()).float(), (images,))
