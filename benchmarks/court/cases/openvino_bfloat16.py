"""A float32 model on a processor that has bfloat16."""

from functools import partial
from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import settled
from torch import nn
from truth import Case, Rounding, Sides
from units import bfloat16, with_products

CASE = Case(
    thread="https://github.com/openvinotoolkit/openvino/issues/28032",
    kind="precision",
    question="OpenVINO infers in bfloat16 though float32 was asked for: a bug of the option?",
    truth=Rounding("inference in bfloat16 by default on this processor", "bfloat16"),
    said="The option sets the inputs only; another one changes inference from its default, bfloat16, to float32.",
    read="thread",
    emulated="OpenVINO: operands and results of products rounded to bfloat16, called as a black box",
)


def build(folder: Path) -> Sides:
    """An image tower as SigLIP has it."""
    network = settled(VisionTransformer(activation=partial(nn.GELU, approximate="tanh")))
    other = with_products(network, bfloat16, are_results_rounded=True)
    return Sides(network, other, (torch.randn(2, 3, 32, 32),))
