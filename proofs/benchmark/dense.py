"""Dense attention as a PyTorch user would write it: scaled_dot_product_attention with an additive bias.

The positional scores do not depend on the image, so they are computed once, as the bias; queries and keys are zero, so
that it is the whole score. (They are real zeros: for expanded ones, torch leaves its fast kernel.) The values of head h
are W_h x, and the output is the sum over heads:

    output = b + sum_h softmax(0 . 0 / sqrt(D) + bias_h) (W_h x)
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ...convert import SelfAttention2d
from ...convert.heads.regime import compute_dtype
from ...convert.size import Size
from ...convert.spec import ConvSpec


class DenseAttention:
    """A layer without content terms and with groups = 1, as one call of scaled_dot_product_attention.

    Args:
        layer: The layer.
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
