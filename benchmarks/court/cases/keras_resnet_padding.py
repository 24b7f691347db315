"""A ResNet whose convolutions of stride 2 pad on the other side."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import cnn
from editing import replaced, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/keras-team/keras/pull/16363",
    kind="ports",
    question="The same weights and inputs give other outputs in Keras, with stride 2 only",
    truth=Bug("convolutions of stride 2: padding (0, 1) for (1, 1), the map is shifted", r"^9|conv", ("padding",)),
    said="It is the padding: the port must pad by hand before convolutions with a stride, then outputs agree.",
    read="excerpt",
    emulated="Keras: the same network in torch with SAME padding, called as a black box",
)


class Same(nn.Module):
    """A 3x3 convolution of stride 2 with the padding that SAME gives images of even size: behind only."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight = conv.weight

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, stride=2)


def build(folder: Path) -> Sides:
    """A CNN with two convolutions of stride 2."""
    images = torch.randn(2, 3, 32, 32)
    network = settled(cnn(), images)
    other = replaced(network, nn.Conv2d, lambda conv: Same(conv) if conv.stride == (2, 2) else conv)
    return Sides(network, lambda x: other(x), (images,))
