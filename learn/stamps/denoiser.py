"""The CNN that cleans pages, and the other ways of letting it see more that attention is compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_WIDTHS = 16, 32, 48, 48, 48
_STRIDES = 1, 2, 2, 1, 1
_TOKEN = 4  # pixels of a token's side, after two strides
LOOKS = "trunk.9"
"""The last layer that sees several tokens."""


class Denoiser(nn.Module):
    """Five convolutions, with tokens of 4 x 4 pixels in the end, each of which sees 17 x 17 pixels around its corner.

    Args:
        last: Kernel size of the last convolution that sees several tokens.
    """

    def __init__(self, *, last: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        kernels = 3, 3, 3, last, 1
        for before, width, stride, kernel in zip((1, *_WIDTHS), _WIDTHS, _STRIDES, kernels, strict=False):
            convolution = nn.Conv2d(before, width, kernel, stride=stride, padding=kernel // 2, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
        self.trunk, self.out = nn.Sequential(*layers), nn.Conv2d(_WIDTHS[-1], _TOKEN**2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Cleans pages [batch, 1, rows, columns], whose sides are multiples of 4."""
        return F.pixel_shuffle(self.out(self.trunk(x)), _TOKEN)


class GlobalContext(nn.Module):
    """Adds a map of the mean of all tokens to each, which is 0 at first (after GCNet, arXiv 1904.11492).

    Args:
        channels: Of a token.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, channels), nn.Linear(channels, channels)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Adds it to [batch, channels, rows, columns]."""
        added: Tensor = self.up(torch.relu(self.down(x.mean((2, 3)))))
        return x + added[:, :, None, None]


def with_context(cnn: Denoiser) -> Denoiser:
    """Gives a trained denoiser a global context, which changes nothing at first."""
    cnn.trunk.append(GlobalContext(_WIDTHS[-1]))
    return cnn


def with_larger_kernel(cnn: Denoiser, size: int = 9) -> Denoiser:
    """A trained denoiser with a larger kernel in its last layer, zeros around the trained one."""
    larger, state = Denoiser(last=size), cnn.state_dict()
    weight = state[f"{LOOKS}.weight"]
    state[f"{LOOKS}.weight"] = F.pad(weight, ((size - weight.shape[3]) // 2,) * 4)
    larger.load_state_dict(state)
    return larger
