"""Content in the separable engine: attention that reads the image, without a number for every query and key.

The draft's eq. (7) is one dot product of the query's content and the key's, and one of a vector of the query with the
relative encoding r of the pair:

    score = (W_qry x_q + u) . (W_key x_k)  +  (W^_key^T W_qry x_q + v) . r

The second is a sum of one term an axis, and ``sums/content_sum.py`` computes the softmax and the sum over heads, some
queries at a time. Behind a gate v is not part of it, and the output is a sum of two layers with the same heads, since
it is linear in the value projections:

    sum_h W_h ((1 - g_h) P_h + g_h P'_h) X  =  sum_h ((1 - g_h) W_h) P_h X  +  sum_h (g_h W_h) P'_h X

The first is a layer without content, which is computed as any other: where all g are 0, it is the convolution itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..heads.content import ContentTerms
from ..heads.encoding import head_vectors, key_numbers
from ..heads.values import AttentionLayer, LayerValues
from ..size import Size
from ..transforms import is_differentiating, is_transformed
from .base import Cost
from .factored import FactoredEngine
from .literal import all_queries
from .sums.content_sum import Scores, content_sum, queries_at_a_time
from .sums.head_sum import head_weights

_FACTORED = FactoredEngine()


def content_refusal(layer: AttentionLayer, content: ContentTerms) -> str | None:
    """Why this is not how a layer with content terms can be computed, or None if it is."""
    if layer.axis_scores is not None and content.gate is None:
        return "the layer has content terms in one softmax with learned tables"
    if is_transformed() or is_differentiating():
        return "the layer has content terms, whose derivatives here are not those of a trace or a transform"
    return None


def content_cost(layer: AttentionLayer, content: ContentTerms, size: Size, *, batch: int) -> Cost:
    """All pairs; memory for the scores of some queries, and for the queries and keys of all."""
    spec, grid, element = layer.spec, layer.spec.padded_size(size), layer.regime.dtype.itemsize
    queries, keys, key_dim = math.prod(spec.output_size(size)), math.prod(grid), content.key_weight.shape[1]
    pairs = batch * spec.num_heads * queries * keys
    mixing = batch * queries * spec.num_heads * spec.out_channels * spec.in_channels // spec.groups
    chunk = min(queries, queries_at_a_time(spec.num_heads, grid, element))
    vectors = batch * spec.num_heads * (keys * key_dim + queries * (2 * key_dim + 2 * spec.axes + 2))
    images = batch * (2 * keys * spec.in_channels + queries * spec.out_channels)
    held = spec.num_heads * chunk * (2 * keys + spec.in_channels) + vectors + images
    return Cost(pairs * (content.score_flops + 2 * spec.in_channels) + 2 * mixing, held * element)


def without_content(layer: AttentionLayer) -> LayerValues:
    """The positional part of a layer."""
    return LayerValues.of(layer)._replace(content=None)


def attend_content(
    layer: AttentionLayer, content: ContentTerms, x: Tensor, by_position: Callable[[AttentionLayer, Tensor], Tensor]
) -> Tensor:
    """Computes a layer with content terms.

    Args:
        layer: The layer.
        content: Its content terms.
        x: [batch, in_channels, *size].
        by_position: What computes a layer without content, if it is no smoothing before a convolution.

    Returns:
        [batch, out_channels, *output size].
    """
    weight, opened = head_weights(layer, layer.regime.dtype), LayerValues.of(layer).opened
    if opened is None:
        vectors = head_vectors(layer.alpha, layer.centers).to(weight.dtype)
        output = _image(layer, x, content_sum(*_inputs(layer, content, x, weight, vectors)))
        bias = layer.bias
        return (output if bias is None else output + bias.view(-1, *(1,) * layer.spec.axes)).to(x.dtype)
    opened = opened.to(weight.dtype)
    by_content = content_sum(*_inputs(layer, content, x, opened.view(-1, 1, 1, 1) * weight, None))
    values = _closed(without_content(layer), 1 - opened)
    positional = by_position if _FACTORED.refusal(values) is not None else _FACTORED.attend
    return positional(values, x) + _image(layer, x, by_content).to(x.dtype)


def _inputs(
    layer: AttentionLayer, content: ContentTerms, x: Tensor, weight: Tensor, vectors: Tensor | None
) -> tuple[Tensor, Tensor, Scores]:
    """What ``content_sum`` takes; ``vectors`` are v, [num_heads, axes + 1], or None for zeros."""
    spec, size, dtype = layer.spec, Size(*x.shape[2:]), weight.dtype
    grid, padded = spec.padded_size(size), spec.pad(x).to(dtype)
    positions = all_queries(spec, size, like=padded)
    pixels = padded.flatten(2)
    under_query = pixels[..., key_numbers(positions, grid)]
    asked = torch.einsum("bcq,hdc->bhqd", under_query, content.query_weight.to(dtype))
    keys = torch.einsum("bck,hdc->bhdk", pixels, content.key_weight.to(dtype))
    of_query = torch.einsum("bhqd,hdp->bhqp", asked, content.position_weight.to(dtype))
    if vectors is not None:
        of_query = of_query + vectors.unsqueeze(1)
    queries = asked + content.key_bias.to(dtype).unsqueeze(1)
    return padded, weight, Scores(queries, keys, of_query, positions.to(dtype), grid)


def _closed(layer: LayerValues, closed: Tensor) -> LayerValues:
    """The layer with each head's value projection times a number, [num_heads]."""
    factors = closed.to(layer.weight.dtype).view(layer.spec.kernel_size)
    if layer.spec.transposed:
        factors = factors.flip(tuple(range(factors.ndim)))  # as ``ConvSpec.kernel`` flips its weight
    return layer._replace(weight=layer.weight * factors)


def _image(layer: AttentionLayer, x: Tensor, by_query: Tensor) -> Tensor:
    """[batch, queries, out_channels] as an image."""
    return torch.unflatten(by_query.transpose(1, 2), 2, tuple(layer.spec.output_size(Size(*x.shape[2:]))))
