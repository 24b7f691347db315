"""A network whose values are recorded, its images, and layouts that other programs have."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

X = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(3))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.GELU())
    return nn.Sequential(*layers, nn.Conv2d(8, 4, 3)).eval()


def laid(how: str, x: Tensor) -> Tensor:
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "channels last": lambda x: x.permute(0, 2, 3, 1),
        "flattened": lambda x: x.flatten(1),
        "another order of images": lambda x: x.flip(0),
        "channels in another order": lambda x: x[:, list(range(x.shape[1]))[::-1]],
        "padded": lambda x: torch.cat(
            [x.permute(0, 2, 3, 1), torch.zeros(*x.shape[2:], 5).expand(len(x), -1, -1, -1)], 3
        ),
    }
    return ways[how](x).contiguous()
