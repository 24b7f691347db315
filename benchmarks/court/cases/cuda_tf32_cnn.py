"""A CNN on a GPU with tensor cores."""

from pathlib import Path

import torch
from blocks import cnn
from editing import settled
from truth import Case, Rounding, Sides
from units import tf32, with_products

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/107514",
    kind="precision",
    question="Convolutions are wrong on a 3090, and right on a 1060: a bug?",
    truth=Rounding("cuDNN multiplies in TF32", "tf32"),
    said="The difference disappears with allow_tf32 = False; older GPUs have no tensor cores.",
    read="excerpt",
    emulated="the GPU: operands rounded to TF32, products summed in float32, called as a black box",
)


def build(folder: Path) -> Sides:
    """Seven convolutions and a linear layer, whose products torch leaves in float32 there; here all are in TF32."""
    images = torch.randn(2, 3, 32, 32)
    network = settled(cnn(32, 6), images)
    return Sides(network, with_products(network, tf32), (images,))
