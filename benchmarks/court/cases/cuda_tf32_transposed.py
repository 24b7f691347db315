"""Transposed convolutions on a GPU with tensor cores."""

from pathlib import Path

import torch
from blocks import convolution
from editing import settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides
from units import tf32, with_products

CASE = Case(
    thread="https://github.com/pytorch/functorch/issues/1050",
    kind="precision",
    question="Transposed convolutions look incorrect on an A100: 75 % of the elements differ, by 0.11 at most",
    truth=Rounding("cuDNN multiplies in TF32", "tf32"),
    said="Closed as expected: TF32 has not the precision of float32.",
    read="thread",
    emulated="the GPU: operands rounded to TF32, products summed in float32, called as a black box",
)


class UNet(nn.Module):
    """Down and up again, with a bridge."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Sequential(*convolution(3, width))
        self.down = nn.Sequential(*convolution(width, 2 * width, 3, 2), *convolution(2 * width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.last = nn.Sequential(*convolution(2 * width, width), nn.Conv2d(width, 3, 1))

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, height, width]."""
        x = self.first(images)
        found: Tensor = self.last(torch.cat((x, self.up(self.down(x))), 1))
        return found


def build(folder: Path) -> Sides:
    """A small U-Net."""
    images = torch.randn(2, 3, 32, 32)
    network = settled(UNet(), images)
    return Sides(network, with_products(network, tf32), (images,))
