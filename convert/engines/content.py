"""Content in the separable engine: attention that reads the image, one softmax and two products for all heads.

The draft's eq. (7) is one dot product of the query's content and the key's, and one of a vector of the query with the
relative encoding r of the pair:

    score = (W_qry x_q + u) . (W_key x_k)  +  (W^_key^T W_qry x_q + v) . r

With phi(k) = (|k|^2, k) the encoding is linear in it up to a constant of the query, which softmax ignores:

    a |k - q|^2 + b . (k - q)  =  a |k|^2 + (b - 2 a q) . k  +  constant

so the score is one dot product of longer vectors, (W_qry x_q + u, a, b - 2 a q) with (W_key x_k, |k|^2, k), and no bias
for every pair is needed. Positions are counted from the grid's middle, where they are smallest. With sharp positions
large terms cancel, so scores are computed in double precision.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import Size
from ..context import is_traced, is_transformed
from ..heads.content import ContentTerms
from ..heads.encoding import head_vectors, key_numbers, key_positions
from ..heads.values import LayerValues
from .base import Cost
from .head_sum import head_weights
from .literal import all_queries

_CACHE = 2**21  # bytes of scores that are formed at once
_SCORES = 2**26  # bytes of scores up to which all are formed; beyond, torch's fused kernel takes them by parts


def content_cost(layer: LayerValues, content: ContentTerms, size: Size, *, batch: int) -> Cost:
    """All pairs; memory for the queries, keys and values of all heads, and for the scores where they are formed."""
    spec, grid = layer.spec, layer.spec.padded_size(size)
    element = 8  # of double precision
    queries, keys, key_dim = math.prod(spec.output_size(size)), math.prod(grid), content.key_weight.shape[1]
    pairs = batch * spec.num_heads * queries * keys
    mixing = batch * queries * spec.num_heads * spec.out_channels * spec.in_channels // spec.groups
    flops = pairs * (content.score_flops + 2 * spec.in_channels) + 2 * mixing
    width, formed = key_dim + spec.axes + 1, 2 * pairs
    if pairs * element > _SCORES:
        width, formed = max(width, spec.in_channels), 0
    held = batch * spec.num_heads * (queries * (width + spec.in_channels) + keys * (width + spec.in_channels))
    return Cost(flops, (held + formed) * element)


def attend_content(layer: LayerValues, content: ContentTerms, x: Tensor) -> Tensor:
    """Computes a layer with content terms.

    Args:
        layer: The layer.
        content: Its content terms.
        x: [batch, in_channels, *size].

    Returns:
        [batch, out_channels, *output size].
    """
    spec, size, bias = layer.spec, Size(*x.shape[2:]), layer.bias
    pixels = spec.pad(x).to(torch.float64).flatten(2).transpose(1, 2)
    queries, keys = _queries_and_keys(layer, content, pixels, size)
    attended = _attention(queries, keys, pixels.unsqueeze(1))  # [batch, heads, queries, in_channels]
    grouped = torch.unflatten(attended, 3, (spec.groups, -1)).permute(0, 3, 2, 1, 4).flatten(3)
    mixing = head_weights(layer, torch.float64).permute(1, 0, 3, 2).flatten(1, 2)
    output = torch.unflatten((grouped @ mixing).transpose(2, 3).flatten(1, 2), 2, tuple(spec.output_size(size)))
    return (output if bias is None else output + bias.view(-1, *(1,) * spec.axes)).to(x.dtype)


def _queries_and_keys(layer: LayerValues, content: ContentTerms, pixels: Tensor, size: Size) -> tuple[Tensor, Tensor]:
    """The longer vectors, [batch, num_heads, queries or keys, key_dim + axes + 1].

    Args:
        layer: The layer.
        content: Its content terms.
        pixels: The padded input, [batch, keys, in_channels].
        size: Size of the input, without padding.
    """
    grid, dtype = layer.spec.padded_size(size), pixels.dtype
    positions = all_queries(layer.spec, size, like=pixels)
    asked = torch.einsum("bqc,hdc->bhqd", pixels[:, key_numbers(positions, grid)], content.query_weight.to(dtype))
    shown = torch.einsum("bkc,hdc->bhkd", pixels, content.key_weight.to(dtype))
    of_query = torch.einsum("bhqd,hdp->bhqp", asked, content.position_weight.to(dtype))
    of_query = of_query + head_vectors(layer.alpha.double(), layer.centers.double()).unsqueeze(1)
    middle = torch.stack([positions.new_full((), (length - 1) / 2) for length in grid])
    at = (key_positions(grid, like=pixels) - middle.to(dtype)).to(dtype)
    square, linear = of_query[..., :1], of_query[..., 1:] - 2 * of_query[..., :1] * (positions - middle).to(dtype)
    encoded = torch.cat([at.square().sum(-1, keepdim=True), at], -1).expand(*shown.shape[:2], -1, -1)
    queries = torch.cat([asked + content.key_bias.to(dtype).unsqueeze(1), square, linear], -1)
    return queries, torch.cat([shown, encoded], -1)


def _attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(Q K^T) V of all heads, which share their values.

    Where the scores of all pairs are few, they are formed, on a CPU for as many images at once as its cache holds;
    where they are many, torch's fused kernel takes them by parts, which needs vectors of one width.
    """
    heads = queries.shape[1]
    if is_transformed() or queries.shape[:3].numel() * keys.shape[2] * queries.element_size() <= _SCORES:
        if is_traced() or not queries.is_cpu:
            return _formed(queries, keys, values)
        at_once = max(1, _CACHE // (queries.shape[1:3].numel() * keys.shape[2] * queries.element_size()))
        parts = (each.split(at_once) for each in (queries, keys, values))
        return torch.cat([_formed(*part) for part in zip(*parts, strict=True)])
    channels, width = values.shape[3], max(values.shape[3], keys.shape[3])
    values = values.contiguous().expand(-1, heads, -1, -1)  # as in sdpa.py
    q, k, v = (F.pad(each, (0, width - each.shape[3])) for each in (queries, keys, values))
    return F.scaled_dot_product_attention(q, k, v, scale=1.0)[..., :channels]


def _formed(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same, by one product with V for all heads."""
    probabilities = torch.softmax(queries @ keys.transpose(2, 3), -1)
    return torch.unflatten(probabilities.flatten(1, 2) @ values.squeeze(1), 1, (queries.shape[1], -1))
