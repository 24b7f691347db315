"""A chip that reads an activation's integers by its own scale."""

import copy
from pathlib import Path

import torch
from blocks import convolution
from editing import settled
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import steps

CASE = Case(
    thread="https://github.com/onnxruntime/onnxruntime-qnn/pull/473",
    kind="quantised",
    question="A quantised MobileNetV3 has 2 % accuracy on the chip in place of 67 %",
    truth=Bug("hard sigmoid: its integers are read with a scale of 1/256 for the calibrated one", r"gate", ("scale",)),
    said="Merged: the scale is fixed to what the chip expects; accuracy is back at 66.7 %.",
    read="thread",
    emulated="QNN: the same network in torch with this scale, called as a black box",
)


class Gate(nn.Module):
    """Squeeze and excitation, with 8-bit integers behind the hard sigmoid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool, self.conv = nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1)
        self.scale, self.read = 0.8 / 255, 0.8 / 255

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width, height, width]."""
        gate = nn.functional.hardsigmoid(self.conv(self.pool(x)))
        return x * steps(gate, self.scale, 0, 255) * self.read


def build(folder: Path) -> Sides:
    """Two gates; calibration saw values up to 0.8."""
    images = torch.randn(2, 3, 32, 32)
    layers = [*convolution(3, 16), Gate(16), *convolution(16, 16, stride=2), Gate(16), nn.Conv2d(16, 10, 16)]
    network = settled(nn.Sequential(*layers), images)
    other = copy.deepcopy(network)
    for part in other:
        if isinstance(part, Gate):
            part.read = 1 / 256
    return Sides(network, lambda x: other(x), (images,))
