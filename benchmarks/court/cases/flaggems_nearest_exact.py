"""A segmenter whose maps are enlarged by half a pixel less."""

from pathlib import Path

import torch
from blocks import convolution
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/flagos-ai/FlagGems/pull/5229",
    kind="compilers",
    question="nearest-exact gives what nearest gives, as soon as its factor is not 2",
    truth=Bug("nearest interpolation: nearest for nearest-exact, without half a pixel", r"up", ("nearest",)),
    said="Open; in one and two dimensions the half pixel was forgotten, the kernel of three dimensions has it.",
    read="excerpt",
    emulated="FlagGems (Triton): the same network in torch with this mode",
)


class Segmenter(nn.Module):
    """Classes of pixels, from maps of two sizes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Sequential(*convolution(3, width)), nn.Sequential(*convolution(width, width, 3, 2))
        self.up = nn.Upsample((30, 39), mode="nearest-exact")
        self.head = nn.Conv2d(2 * width, 5, 1)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 5, 30, 39]."""
        x = self.fine(images)
        found: Tensor = self.head(torch.cat((self.up(x), self.up(self.coarse(x))), 1))
        return found


def build(folder: Path) -> Sides:
    """Factors of 1.5 and 3."""
    images = torch.randn(2, 3, 20, 26)
    network = settled(Segmenter(), images)
    return Sides(network, edited(network, nn.Upsample, mode="nearest"), (images,))
