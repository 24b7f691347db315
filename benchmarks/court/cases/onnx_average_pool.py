"""Average pooling whose last windows reach over the padding."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import convolution
from editing import exported, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/183528",
    kind="compilers",
    question="The last row and column of an average pool differ in ONNX Runtime",
    truth=Bug("average pool with ceil_mode: divided by 9 where the window is smaller", r"pool", ("divi",)),
    said="Triaged as a mismatch of export with ceil_mode, and closed; today's versions agree.",
    read="thread",
    emulated="old ONNX Runtime: the pool as a convolution with weights of 1/9 over padded pixels, in an ONNX file",
)


class Pool(nn.Module):
    """The pool as old versions computed it."""

    def forward(self, x: Tensor) -> Tensor:
        """Divides each window's sum by 9."""
        weight = torch.full((x.shape[1], 1, 3, 3), 1 / 9)
        return F.conv2d(F.pad(x, (1, 2, 1, 2)), weight, stride=2, groups=x.shape[1])


def build(folder: Path) -> Sides:
    """A CNN with the pool in its middle."""
    images = torch.randn(1, 3, 16, 16)
    pool = nn.AvgPool2d(3, 2, 1, ceil_mode=True)
    network = settled(nn.Sequential(*convolution(3, 16), pool, nn.Conv2d(16, 8, 3)), images)
    other = nn.Sequential(*network[:3], Pool(), network[4]).eval()
    return Sides(network, exported(other, (images,), folder), (images,))
