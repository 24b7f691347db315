"""A convolution that copies its input, on a GPU."""

from pathlib import Path

import torch
from torch import nn
from truth import Case, Rounding, Sides
from units import tf32, with_products

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/129649",
    kind="precision",
    question="A 3-D convolution that copies its input has an error of 1e-3 on a GPU, and none on a CPU",
    truth=Rounding("cuDNN multiplies in TF32", "tf32"),
    said="Most likely tensor cores: try with torch.backends.cudnn.allow_tf32 = False.",
    read="thread",
    emulated="the GPU: operands rounded to TF32, products summed in float32, called as a black box",
)


def build(folder: Path) -> Sides:
    """64 channels in place of 1,152."""
    network = nn.Sequential(nn.Conv3d(64, 64, (2, 1, 1), (2, 1, 1), bias=False)).eval()
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].weight[range(64), range(64), 0] = 1
    return Sides(network, with_products(network, tf32), (torch.randn(1, 64, 8, 8, 8),))
