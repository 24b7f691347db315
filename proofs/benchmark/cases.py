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
import torch.nn.functional as F
from torch import Tensor, nn

from ...convert import SelfAttention2d, attention_from_conv
from ...convert.heads.regime import compute_dtype
from ...convert.size import Size
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
    """A layer, ready to be measured."""

    layer: BenchmarkLayer
    conv: nn.Conv2d
    x: Tensor  # random input, [batch, in_channels, rows, columns]
    seed: int  # seed of the weights, of the input, and of free heads
    memory_limit: int  # bytes that a score for every head, query and key may take
    limit_flops: float  # quadratic attention that takes more FLOPs for one call is not measured

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


class DenseAttention:
    """A layer without content terms and with groups = 1, as a PyTorch user would write it: one call, with a bias.

    The positional scores do not depend on the image, so they are computed once, as the additive bias; queries and keys
    are zero, so that it is the whole score. (They are real zeros: for expanded ones, torch leaves its fast kernel.) The
    values of head h are W_h x, and the output is the sum over heads:

        output = b + sum_h softmax(0 . 0 / sqrt(D) + bias_h) (W_h x)
    """

    def __init__(self, layer: SelfAttention2d) -> None:
        self.layer = layer
        self._bias: Tensor | None = None
        self._size: Size | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Computes the layer: [batch, in_channels, rows, columns] to [batch, out_channels, ...]."""
        spec, size = self.layer.spec, Size(x.shape[2], x.shape[3])
        if self._bias is None or self._size != size:
            self._bias, self._size = score_bias(self.layer, size).to(x.dtype), size
        pixels = spec.pad(x).flatten(2).transpose(1, 2)
        values = pixels.unsqueeze(1) @ self.layer.weight.flatten(2).permute(2, 1, 0)
        queries = values.new_zeros(*values.shape[:2], self._bias.shape[1], values.shape[3])
        keys = torch.zeros_like(values)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self._bias.unsqueeze(0)).sum(1)
        if self.layer.bias is not None:
            mixed = mixed + self.layer.bias
        return torch.unflatten(mixed.transpose(1, 2), 2, spec.output_size(size))


@torch.no_grad()
def score_bias(layer: SelfAttention2d, size: Size) -> Tensor:
    """-alpha_h |k - q - Delta_h|^2 for every head, query and key, [num_heads, queries, keys], in at least float32."""
    spec, dtype = layer.spec, compute_dtype(layer.alpha.dtype)
    axes = []
    for axis, (positions, keys) in enumerate(zip(spec.query_positions(size), spec.padded_size(size), strict=True)):
        queries = torch.tensor(list(positions), dtype=torch.float64, device=layer.alpha.device)
        delta = torch.arange(keys, dtype=torch.float64, device=queries.device) - queries.unsqueeze(1)
        squared = (delta - layer.centers[:, axis, None, None].double()).square()
        axes.append((-layer.alpha[:, None, None].double() * squared).to(dtype))
    rows, columns = axes
    return (rows[:, :, None, :, None] + columns[:, None, :, None, :]).flatten(3).flatten(1, 2)


def number_of_scores(spec: ConvSpec, size: Size) -> int:
    """Heads times queries times keys."""
    return spec.num_heads * math.prod(spec.output_size(size)) * math.prod(spec.padded_size(size))
