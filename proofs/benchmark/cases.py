"""One layer with its weights and its input, and the attention layers that stand for it.

Three regimes are measured:

    exact   alpha so large that attention is exactly one-hot: the layer is the convolution
    soft    alpha = 2 for all heads, which still sit at the kernel's taps
    free    heads that have moved: real centres within a pixel of the taps, an alpha of each head's own
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...convert import SelfAttention2d, attention_from_conv
from ...convert.spec import ConvSpec
from .tables import BenchmarkLayer

SOFT_ALPHA = 2.0
FREE_ALPHAS = (0.5, 8.0)
FREE_SHIFT = 1.0  # pixels


class Regime(StrEnum):
    """Which attention a layer computes."""

    exact = "exact"
    soft = "soft"
    free = "free"


class Limits(NamedTuple):
    """Limits on attention whose cost is quadratic in the pixels; above them it is not measured.

    Attributes:
        memory: Bytes that its scores may take.
        flops: FLOPs of a forward call.
    """

    memory: int
    flops: float


@dataclass(frozen=True)
class Case:
    """A layer, ready to be measured.

    Attributes:
        layer: Its geometry.
        conv: The convolution, with random weights.
        x: Random input, [batch, in_channels, rows, columns].
        seed: Of the weights, of the input, and of free heads.
        limits: What is not tried.
    """

    layer: BenchmarkLayer
    conv: nn.Conv2d
    x: Tensor
    seed: int
    limits: Limits

    @classmethod
    def draw(cls, layer: BenchmarkLayer, *, batch: int, seed: int, like: Tensor, limits: Limits) -> Case:
        """Draws weights and input, with the dtype and device of ``like``."""
        generator = torch.Generator().manual_seed(seed)
        conv = nn.Conv2d(**layer.spec.arguments()).requires_grad_(False)
        bound = math.prod(conv.weight.shape[1:]) ** -0.5  # as nn.Conv2d draws them
        for parameter in conv.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
        x = torch.randn(batch, layer.spec.in_channels, *layer.size, generator=generator)
        return cls(layer, conv.to(like), x.to(like), seed, limits)

    def attention(self, regime: Regime, engine: str) -> SelfAttention2d:
        """The attention layer of the convolution in a regime."""
        alpha = SOFT_ALPHA if regime is Regime.soft else None
        layer = attention_from_conv(self.conv, alpha=alpha, engine=engine)
        layer.memory_limit = self.limits.memory
        if regime is Regime.free:
            _free_heads(layer, torch.Generator().manual_seed(self.seed))
        return layer

    def first_image(self) -> Case:
        """The same layer, on the first image alone, in double precision."""
        return replace(self, conv=_double(self.conv), x=self.x[:1].double())


@torch.no_grad()
def _free_heads(layer: SelfAttention2d, generator: torch.Generator) -> None:
    """Moves each head by up to a pixel along each axis, and gives it an alpha of its own."""
    shift = 2 * torch.rand(layer.centers.shape, generator=generator) - 1
    layer.centers.add_(FREE_SHIFT * shift.to(layer.centers))
    low, high = FREE_ALPHAS
    layer.alpha.copy_(low + (high - low) * torch.rand(layer.alpha.shape, generator=generator))


def _double(conv: nn.Conv2d) -> nn.Conv2d:
    copied = nn.Conv2d(**ConvSpec.from_conv(conv).arguments(), dtype=torch.float64, device=conv.weight.device)
    copied.load_state_dict(conv.state_dict())
    return copied.requires_grad_(False)
