"""An image encoder that pads on all sides where its weights expect two."""

from pathlib import Path

import torch
import torch.nn.functional as F
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/VincentGourbin/flux-2-swift-mlx/pull/106",
    kind="ports",
    question="Every image made from another image has a grey border of 8 to 16 pixels above and to the left",
    truth=Bug("downsampling: pixels are padded on all sides, for right and below alone", r"down", ("pad",)),
    said="Mended: shapes are the same with both, so nothing failed; only encoding was touched.",
    read="excerpt",
    emulated="MLX (Swift): the same network in torch with this padding",
)


class Downsample(nn.Module):
    """Halves an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.pad = nn.Conv2d(width, width, 3, 2), (0, 1, 0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width, height / 2, width / 2]."""
        found: Tensor = self.conv(F.pad(x, self.pad))
        return found


class Residual(nn.Module):
    """Two convolutions beside the stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.GroupNorm(8, width, eps=1e-6) for _ in range(2))
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width, height, width]."""
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Encoder(nn.Module):
    """Three times smaller by a half."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(3))
        self.downs = nn.ModuleList(Downsample(width) for _ in range(3))
        self.norm, self.out = nn.GroupNorm(8, width, eps=1e-6), nn.Conv2d(width, 8, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 8, height / 8, width / 8]."""
        x = self.stem(images)
        for block, down in zip(self.blocks, self.downs, strict=True):
            x = down(block(x))
        found: Tensor = self.out(F.silu(self.norm(x)))
        return found


def build(folder: Path) -> Sides:
    """An encoder of latents."""
    network = settled(Encoder())
    return Sides(network, edited(network, Downsample, pad=(1, 1, 1, 1)), (torch.randn(1, 3, 48, 64),))
