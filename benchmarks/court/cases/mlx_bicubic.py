"""Positions that are resized with the coefficient of another bicubic kernel."""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Attention, Block, FeedForward
from editing import settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/Blaizzy/mlx-vlm/issues/1241",
    kind="ports",
    question="An image tower agrees where its positions need no interpolation, and has cosine 0.989 where they do",
    truth=Bug("bicubic interpolation of positions: a = -0.5 for -0.75", r"bicubic|upsample", ("-0.75", "-0.5")),
    said="A fix takes torch's coefficient: -0.75 without antialiasing, -0.5 with it.",
    read="excerpt",
    emulated="MLX: the same network in torch with Keys' kernel, called as a black box",
)


def _matrix(inner: int, outer: int, a: float) -> Tensor:
    """Bicubic interpolation along an axis, as torch has it, with any coefficient: [outer, inner]."""
    places = (torch.arange(outer, dtype=torch.float64) + 0.5) * inner / outer - 0.5
    found = torch.zeros(outer, inner, dtype=torch.float64)
    for tap in range(-1, 3):
        index = places.floor() + tap
        x = (places - index).abs()
        near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        column = index.clamp(0, inner - 1).long()[:, None]
        found.scatter_add_(1, column, torch.where(x <= 1, near, far)[:, None])
    return found.float()


class Tower(nn.Module):
    """Patches, resized positions, and three blocks."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.patches, self.positions = nn.Conv2d(3, width, 4, 4), nn.Parameter(torch.randn(1, width, 16, 16))
        make = (Block(width, nn.LayerNorm, Attention(width, 4), FeedForward(width, 96, nn.GELU())) for _ in range(3))
        self.blocks, self.norm = nn.Sequential(*make), nn.LayerNorm(width)
        self.a = -0.75

    def resized(self, height: int, width: int) -> Tensor:
        """Positions of another grid."""
        if self.a == -0.75:
            return F.interpolate(self.positions, (height, width), mode="bicubic", align_corners=False)
        return _matrix(16, height, self.a) @ self.positions @ _matrix(16, width, self.a).T

    def forward(self, images: Tensor) -> Tensor:
        """Features, [batch, patches, width]."""
        x = self.patches(images)
        x = x + self.resized(x.shape[2], x.shape[3])
        found: Tensor = self.norm(self.blocks(x.flatten(2).transpose(1, 2)))
        return found


def build(folder: Path) -> Sides:
    """Positions of a 16x16 grid on one of 9x11."""
    network = settled(Tower())
    other = copy.deepcopy(network)
    other.a = -0.5
    return Sides(network, lambda x: other(x), (torch.randn(1, 3, 36, 44),))
