"""The CNNs that clean pages and photographs, and other ways of letting them see more than attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOKEN = 4
"""Pixels of a token's side, after two strides."""
LOOKS = "trunk.9"
"""The last layer that sees several tokens."""


class PageDenoiser(nn.Module):
    """Five convolutions; a token sees 17 x 17 pixels around its corner."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            *_seeing(1, 16), *_seeing(16, 32, stride=2), *_seeing(32, 48, stride=2), *_seeing(48, 48), *_alone(48)
        )
        self.out = nn.Conv2d(48, TOKEN**2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Cleans pages [batch, 1, rows, columns], whose sides are multiples of 4."""
        return F.pixel_shuffle(self.out(self.trunk(x)), TOKEN)


class PhotographDenoiser(nn.Module):
    """A residual denoiser (DnCNN, arXiv 1608.03981) with one way through tokens and one past them.

    Pixels are seen by 3x3 convolutions; tokens, after two strides, by more; what came of them is added to the pixels'
    features. A token sees 27 x 27 pixels around its corner. The output is the input minus the noise that was found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_seeing(1, 16))
        self.trunk = nn.Sequential(
            *_seeing(16, 32, stride=2), *_seeing(32, 64, stride=2), *_seeing(64, 64), *_seeing(64, 64)
        )
        self.up = nn.Conv2d(64, 16 * TOKEN**2, 1)
        self.out = nn.Sequential(*_seeing(16, 16), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Cleans crops [batch, 1, rows, columns], whose sides are multiples of 4."""
        pixels = self.stem(x)
        noise: Tensor = self.out(pixels + F.pixel_shuffle(self.up(self.trunk(pixels)), TOKEN))
        return x - noise


def _seeing(before: int, width: int, *, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(width), nn.ReLU()]


def _alone(width: int) -> list[nn.Module]:
    return [nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]


class GlobalContext(nn.Module):
    """Adds a map of the mean of all tokens to each, which is 0 at first (after GCNet, arXiv 1904.11492)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, channels), nn.Linear(channels, channels)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Adds it to [batch, channels, rows, columns]."""
        added: Tensor = self.up(torch.relu(self.down(x.mean((2, 3)))))
        return x + added[:, :, None, None]


def with_context(cnn: nn.Module) -> nn.Module:
    """Gives a trained denoiser a global context, which changes nothing at first."""
    trunk = cnn.get_submodule("trunk")
    trunk.add_module(str(len(list(trunk.children()))), GlobalContext(len(cnn.get_parameter(f"{LOOKS}.weight"))))
    return cnn


def with_larger_kernel(cnn: nn.Module) -> nn.Module:
    """Gives a trained denoiser a 9x9 kernel in its last layer that sees several tokens, zeros around the trained."""
    small = cnn.get_parameter(f"{LOOKS}.weight").detach()
    large = nn.Conv2d(small.shape[1], len(small), 9, padding=4, bias=False)
    large.weight = nn.Parameter(F.pad(small, ((9 - small.shape[2]) // 2,) * 4))
    cnn.set_submodule(LOOKS, large)
    return cnn
