"""One layer with its weights and its input, and the attention layers that stand for it.

Three regimes are measured:

    exact   alpha so large that attention is exactly one-hot: the layer is the convolution
    soft    alpha = 2 for all heads, which still sit at the kernel's taps
    free    heads that have moved: real centres within a pixel of the taps, and an own alpha for each head
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor, nn

from ...convert import SelfAttention2d, attention_from_conv
from ...convert.spec import ConvSpec
from .tables import BenchmarkLayer

SOFT_ALPHA = 2.0
FREE_ALPHAS = (0.5, 8.0)
FREE_SHIFT = 1.0  # pixels


class Regime(StrEnum):
    """Attention that a layer computes."""

    exact = "exact"
    soft = "soft"
    free = "free"


@dataclass(frozen=True)
class Case:
    """A layer, ready to be measured.

    Attributes:
        layer: Its geometry.
        conv: The convolution, with random weights.
        x: Random input, [batch, in_channels, rows, columns].
        seed: Seed of the weights, of the input, and of free heads.
        memory_limit: Bytes that a score for every head, query and key may take.
        limit_flops: Quadratic attention that takes more FLOPs for one call is not measured.
    """

    layer: BenchmarkLayer
    conv: nn.Conv2d
    x: Tensor
    seed: int
    memory_limit: int
    limit_flops: float

    @classmethod
    def draw(
        cls, layer: BenchmarkLayer, *, batch: int, seed: int, like: Tensor, memory_limit: int, limit_flops: float
    ) -> Case:
        """Draws weights and input, with the dtype and device of ``like``."""
        generator = torch.Generator().manual_seed(seed)
        conv = nn.Conv2d(**layer.spec.arguments()).requires_grad_(False)
        bound = math.prod(conv.weight.shape[1:]) ** -0.5  # as nn.Conv2d draws them
        for parameter in conv.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
        x = torch.randn(batch, layer.spec.in_channels, *layer.size, generator=generator)
        return cls(layer, conv.to(like), x.to(like), seed, memory_limit, limit_flops)

    @torch.no_grad()
    def attention(self, regime: Regime, engine: str) -> SelfAttention2d:
        """The attention layer of the convolution in a regime; free heads are moved, with an alpha of their own."""
        layer = attention_from_conv(self.conv, alpha=SOFT_ALPHA if regime is Regime.soft else None, engine=engine)
        layer.memory_limit = self.memory_limit
        if regime is Regime.free:
            generator, (low, high) = torch.Generator().manual_seed(self.seed), FREE_ALPHAS
            shift = 2 * torch.rand(layer.centers.shape, generator=generator) - 1
            alpha = low + (high - low) * torch.rand(layer.num_heads, generator=generator)
            layer.set_positions(alpha=alpha, centers=layer.centers + FREE_SHIFT * shift)
        return layer

    def first_image(self) -> Case:
        """The same layer, on the first image alone, in double precision."""
        arguments = ConvSpec.from_conv(self.conv).arguments()
        conv = nn.Conv2d(**arguments, dtype=torch.float64, device=self.conv.weight.device).requires_grad_(False)
        conv.load_state_dict(self.conv.state_dict())
        return replace(self, conv=conv, x=self.x[:1].double())
