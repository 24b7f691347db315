"""Likeness of heads to a convolution: the nearest tap of each head, and its distance from it.

A tap Delta reads the key at q + Delta for every query q, and zero where there is no such key. A head reads
sum_k A(q, k) x_k. For inputs that vary by at most 1, zero padding included,

    | sum_k A(q, k) x_k - x_{q + Delta} |  <=  1 - A(q, q + Delta)       (and <= 1 where there is no key)

with equality for some input, so 1 - A(q, q + Delta) is the certificate's norm of the difference
(``proofs/claims/certificate/tail.py`` bounds the same number for heads at their taps). A layer with the projections
W_h is then at most sum_h d_h sum_c |W_h[o, c]| from the convolution of these taps.

The nearest tap is the one with the least mean of these numbers over the queries. A head whose probabilities fall with
the distance from q + Delta, and whose targets are all keys, has Delta as its nearest tap, however soft it is: at every
query the key there has more attention than any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...convert.arguments import Size
from ...convert.errors import GeometryError
from ...convert.heads.encoding import grid_points, relative_positions
from ...convert.layer.layer import SelfAttention2d
from .attention import HeadAttention

_SUM = 2**-8  # error of a row's sum, whose probabilities may be bfloat16: each is rounded by at most 2^-9 of itself


@dataclass(frozen=True)
class HeadLikeness:
    """Comparison of a head with a convolution's tap.

    Attributes:
        tap: Delta of the nearest tap, (row, column), in pixels.
        inside: Share of the queries for which q + Delta is a key.
        share: Mean attention on q + Delta over these queries.
        distance: Most that head and tap differ by, over all queries, for inputs that vary by at most 1.
        spread: Standard deviation of the attended positions about their mean, over both axes together, in pixels: the
            root of its square's mean over the queries.
        nonlocality: Mean distance of the attended pixels from the query, in pixels, as ConViT counts it.
    """

    tap: tuple[int, int]
    inside: float
    share: float
    distance: float
    spread: float
    nonlocality: float

    @property
    def is_one_pixel(self) -> bool:
        """Whether the tap's pixel has more of the attention than all others together."""
        return self.share > 0.5


@dataclass(frozen=True)
class LayerLikeness:
    """Comparison of a layer with a convolution.

    Attributes:
        heads: Its heads.
        distance: Most that an output differs by from the convolution of the heads' nearest taps, for inputs of which
            every channel varies by at most 1.
    """

    heads: tuple[HeadLikeness, ...]
    distance: float

    @property
    def one_pixel(self) -> float:
        """Share of the heads that look at one pixel."""
        return sum(head.is_one_pixel for head in self.heads) / len(self.heads)

    @property
    def nonlocality(self) -> float:
        """Mean over the heads."""
        return sum(head.nonlocality for head in self.heads) / len(self.heads)

    @property
    def spread(self) -> float:
        """Mean over the heads."""
        return sum(head.spread for head in self.heads) / len(self.heads)


def how_convolutional(maps: Tensor, keys: Size, *, queries: Tensor | None = None) -> tuple[HeadLikeness, ...]:
    """Compares attention maps of any model with convolution taps.

    Args:
        maps: Attention probabilities, [num_heads, num_queries, num_keys].
        keys: Rows and columns of the keys.
        queries: Positions of the queries among the keys, whole numbers, [num_queries, 2]; by default every key is a
            query, row by row.

    Raises:
        GeometryError: The shapes do not fit, or the rows are no probabilities.
    """
    positions = grid_points(*map(torch.arange, keys))
    queries = positions if queries is None else queries.to(torch.int64).cpu()
    if maps.ndim != 3 or maps.shape[1:] != (len(queries), len(positions)):
        raise GeometryError(
            f"maps must be [heads, {len(queries)} queries, {len(positions)} keys of {keys}]; got {list(maps.shape)}"
        )
    maps = maps.detach().double().cpu()
    if not bool((maps >= 0).all() & ((maps.sum(-1) - 1).abs() <= _SUM).all()):
        raise GeometryError("maps must be probabilities: not negative, and with the sum 1 for every head and query")
    delta = relative_positions(queries, positions)
    return tuple(_head(probabilities, delta) for probabilities in maps)


def layer_likeness(layer: HeadAttention | SelfAttention2d, size: Size, x: Tensor | None = None) -> LayerLikeness:
    """Compares a layer with the nearest convolution.

    Args:
        layer: A layer of this package.
        size: Rows and columns of its input, without padding.
        x: Its inputs, where it has content, as its ``forward`` takes them; then this is about them only.

    Raises:
        ConversionError: The layer has content and there is no input.
    """
    with torch.no_grad():
        if isinstance(layer, HeadAttention):
            grid = layer.grid(*size)
            maps, keys, queries = layer.probabilities(grid, x), Size(grid.key_rows, grid.key_columns), grid.queries
            places, weight = queries(torch.zeros((), dtype=torch.int64, device="cpu")), layer.weight.transpose(0, 1)
        else:
            keys = layer.spec.padded_size(size)
            maps = layer.attention_probabilities(size, x=x).flatten(-2)
            along = (torch.as_tensor(list(positions), device="cpu") for positions in layer.spec.query_positions(size))
            places, weight = grid_points(*along), layer.kernel.flatten(2).permute(2, 0, 1)
        if maps.ndim == 4:  # queries of every image
            places = places.repeat(len(maps), 1)
            maps = maps.transpose(0, 1).flatten(1, 2)
        heads = how_convolutional(maps, keys, queries=places)
        distances = torch.tensor([head.distance for head in heads], dtype=torch.float64, device="cpu")
        sums = weight.detach().double().cpu().abs().sum(-1)  # [num_heads, out_channels]
        return LayerLikeness(heads, float((distances @ sums).max()))


def _head(probabilities: Tensor, delta: Tensor) -> HeadLikeness:
    """Compares one head, [num_queries, num_keys], with its nearest tap; delta = k - q, [num_queries, num_keys, 2]."""
    tap = _nearest_tap(probabilities, delta)
    at_tap = (delta == tap).all(-1)
    has_key = at_tap.any(1)
    shares = (probabilities * at_tap).sum(1)[has_key]
    offsets = delta.double()
    mean = (probabilities.unsqueeze(-1) * offsets).sum(1, keepdim=True)
    variances = (probabilities * (offsets - mean).square().sum(-1)).sum(1)
    row, column = tap.tolist()
    return HeadLikeness(
        tap=(row, column),
        inside=has_key.double().mean().item(),
        share=shares.mean().item(),
        distance=1 - shares.min().item() if has_key.all() else 1.0,
        spread=math.sqrt(variances.mean().item()),
        nonlocality=(probabilities * offsets.norm(dim=-1)).sum(1).mean().item(),
    )


def _nearest_tap(probabilities: Tensor, delta: Tensor) -> Tensor:
    """The offset with the most attention over all queries, [2]."""
    first = delta.flatten(0, 1).amin(0)
    across = delta[..., 1].amax() - first[1] + 1
    numbers = ((delta - first) * torch.stack([across, torch.ones_like(across)])).sum(-1).flatten()
    totals = torch.zeros(int(numbers.max()) + 1, dtype=probabilities.dtype, device="cpu")
    totals.index_add_(0, numbers, probabilities.flatten())
    best = totals.argmax()
    return first + torch.stack([best // across, best % across])
