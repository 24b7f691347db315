"""A diffusion U-Net whose group norms in front of the spatial transformers have another eps than all others."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Attention, Block, FeedForward
from editing import black_box, edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/ml-explore/mlx-examples/issues/1435",
    kind="ports",
    question="Stable Diffusion in MLX keeps a small difference from diffusers that survives every other fix",
    truth=Bug("group norm of the spatial transformers: eps 1e-5 for 1e-6", r"spatial", ("eps", "1e-06", "1e-05")),
    said="A pull request passes the reference's eps; the others were right, so the wrong one is easy to miss.",
    read="excerpt",
    emulated="MLX: the same network in torch, called as a black box",
)


class Residual(nn.Module):
    """Norm, SiLU and convolution, twice, with the time added between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(16, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Applies it."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


class Spatial(nn.Module):
    """A transformer over the pixels of a map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.GroupNorm(8, width, eps=1e-6), nn.Conv2d(width, width, 1)
        self.block = Block(width, nn.LayerNorm, Attention(width, 4), FeedForward(width, 2 * width, nn.GELU()))
        self.outer = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        y = self.block(self.inner(self.norm(x)).flatten(2).transpose(1, 2))
        return x + self.outer(y.transpose(1, 2).unflatten(2, x.shape[2:]))


class UNet(nn.Module):
    """One level down and up."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.start, self.end = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.down, self.spatial1 = Residual(width), Spatial(width)
        self.narrow, self.middle, self.spatial2 = nn.Conv2d(width, width, 3, 2, 1), Residual(width), Spatial(width)
        self.join, self.norm = nn.Conv2d(2 * width, width, 1), nn.GroupNorm(8, width)

    def forward(self, latents: Tensor, time: Tensor) -> Tensor:
        """Noise, of the latents' shape."""
        high = self.spatial1(self.down(self.start(latents), time))
        low = self.spatial2(self.middle(self.narrow(high), time))
        x = self.join(torch.cat((F.interpolate(low, scale_factor=2.0), high), 1))
        return self.end(F.silu(self.norm(x)))


def build(folder: Path) -> Sides:
    """Latents of 16x16; the maps in front of the transformers vary little, as a denoiser's do at its start."""
    network = settled(UNet())
    with torch.no_grad():
        for name, part in network.named_modules():
            if name in ("start", "down.conv2", "down.time"):
                for weight in part.parameters():
                    weight.mul_(0.25)
    other = edited(network, nn.GroupNorm, where="spatial", eps=1e-5)
    return Sides(network, black_box(other), (0.2 * torch.randn(2, 4, 16, 16), torch.randn(2, 16)))
