"""Convolutions by Winograd's algorithm."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import convolution
from editing import black_box, replaced, settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/uxlfoundation/oneDNN/issues/748",
    kind="compilers",
    question="Winograd's convolution of 144 channels differs from the direct one: is it wrong?",
    truth=Rounding("an algorithm with fewer products and larger numbers between them"),
    said="Labelled not a bug: lower accuracy is a known property of this algorithm.",
    read="excerpt",
    emulated="the kernel: the algorithm for tiles of 4x4, written out in torch and called as a black box",
)
_INPUTS = (
    (4.0, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_WEIGHTS = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OUTPUTS = ((1.0, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


class Winograd(nn.Module):
    """A 3x3 convolution of stride 1 and padding 1, in tiles of 4x4 (Lavin and Gray, 2016)."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outer, height, width]; both sizes are multiples of 4."""
        inputs, weights, outputs = (torch.tensor(rows, dtype=x.dtype) for rows in (_INPUTS, _WEIGHTS, _OUTPUTS))
        tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, 6, 4).unfold(3, 6, 4)
        turned = weights @ self.conv.weight @ weights.T
        product = torch.einsum("bihwyx,oiyx->bohwyx", inputs @ tiles @ inputs.T, turned)
        found = (outputs @ product @ outputs.T).transpose(3, 4).flatten(2, 3).flatten(3)
        return found if self.conv.bias is None else found + self.conv.bias[:, None, None]


def build(folder: Path) -> Sides:
    """Four convolutions on 12x12 pixels, the thread's size."""
    images = torch.randn(2, 48, 12, 12)
    layers = [layer for _ in range(3) for layer in convolution(48, 48)]
    network = settled(nn.Sequential(*layers, nn.Conv2d(48, 16, 3, padding=1)), images)
    return Sides(network, black_box(replaced(network, nn.Conv2d, Winograd)), (images,))
