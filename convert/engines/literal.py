"""The literal engine: multi-head self-attention as the paper writes it.

For every query, head and key it forms the score r_delta . v_h, takes the softmax over all keys, and mixes
the values with the probabilities, which tend to one-hot (``proofs/claims/theorem/one_hot.py``):

    probabilities_h = softmax_k( r_delta . v_h [+ content terms] )       [num_queries, num_keys]
    values_h        = W_val^(h) x_k,   W_val^(h) = W_Delta               [num_keys, out_channels]
    output          = concat_h(probabilities_h values_h) W_out + b,      W_out = the identities, stacked

It is exact for every parameter, unless a head looks so far away that its scores cancel (``encoding.smallest_gap``), and
costs time and memory in proportion to queries times keys. Queries are taken in chunks, so that memory stays under the
layer's limit, and on a CPU near its caches: scores that are read again from there instead of from memory make large
layers up to three times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..arguments import Size, format_bytes
from ..bounds.rounding import literal_error
from ..context import is_traced
from ..errors import EngineError, MemoryLimitError
from ..heads.encoding import (
    encoding_dim,
    grid_points,
    head_vectors,
    key_numbers,
    key_positions,
    positional_scores,
    relative_encoding,
    relative_positions,
)
from ..heads.regime import CANCELS
from ..heads.values import LayerValues, scores_cancel
from ..spec import ConvSpec
from .base import Cost, Engine

_NEAR = 2**23  # bytes of a chunk on a CPU; between 2^22 and 2^24 all are about as fast, and much larger ones are slower


class LiteralEngine(Engine):
    """Scores for every pair, softmax over all keys."""

    name: ClassVar[str] = "literal"
    summary: ClassVar[str] = "attention as the paper writes it: every query scores every key"

    def refusal(self, layer: LayerValues) -> str | None:
        """None unless scores cancel; with content, which may have no other engine, they say so when computed."""
        return CANCELS if layer.content is None and scores_cancel(layer) else None

    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """The whole matrix of FLOPs, and the bytes of the chunks the layer's memory limit allows."""
        spec, keys = layer.spec, math.prod(layer.spec.padded_size(size))
        queries = math.prod(spec.output_size(size))
        pairs = spec.num_heads * queries * keys
        per_score = 2 * encoding_dim(spec.axes) + 4  # products and sums of r . v; maximum, exp, sum and division
        per_score += batch * (0 if layer.content is None else layer.content.score_flops)
        project = 2 * batch * keys * spec.num_heads * spec.out_channels * spec.in_channels // spec.groups
        mix = 2 * batch * pairs * spec.out_channels
        values, query, _ = bytes_needed(layer, size, batch=batch)
        held = values + max(min(queries * query, _room(layer, values)), query)
        return Cost(per_score * pairs + project + mix, held)

    def error(self, layer: LayerValues) -> float:
        """``rounding.literal_error``."""
        return literal_error(layer)

    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer; raises EngineError before allocating what exceeds the memory limit."""
        spec, size = layer.spec, Size(*x.shape[2:])
        chunks = _chunks(layer, size, x)
        padded = spec.pad(x).to(layer.regime.dtype)
        values = project_values(layer, padded).flatten(0, 1).flatten(1)
        parts = [_mix(attention_probabilities(layer, size, part, padded), values, spec.out_channels) for part in chunks]
        output = torch.cat(parts, dim=1)
        if layer.bias is not None:
            output = output + layer.bias.to(output.dtype)
        return torch.unflatten(output.to(x.dtype).transpose(1, 2), 2, tuple(spec.output_size(size)))


def _chunks(layer: LayerValues, size: Size, x: Tensor) -> Sequence[Tensor]:
    """All queries, in chunks that stay under the memory limit; a trace, whose sizes are symbols, takes them at once."""
    queries = all_queries(layer.spec, size, like=x)
    if is_traced():
        return [queries]
    kept = _is_differentiated(layer, x)
    return torch.split(queries, _at_a_time(layer, size, len(queries), batch=x.shape[0], is_kept=kept))


def all_queries(spec: ConvSpec, size: Size, *, like: Tensor) -> Tensor:
    """Positions of all queries on the padded input, row by row, [num_queries, axes], in float64."""
    along = zip(spec.middle, spec.query_stride, spec.output_size(size), strict=True)
    return grid_points(
        *(start + stride * torch.arange(n, dtype=torch.float64, device=like.device) for start, stride, n in along)
    )


def attention_probabilities(layer: LayerValues, size: Size, queries: Tensor, padded: Tensor | None) -> Tensor:
    """Attention probabilities of every head for some queries.

    Args:
        layer: The layer, as all queries of a call see it.
        size: Size of its input, without padding.
        queries: Positions on the padded input, [num_queries, axes].
        padded: The padded input, [batch, in_channels, *padded size]; only content terms need it.

    Returns:
        [num_queries, num_heads, num_keys] without content terms, [batch, num_queries, num_heads, num_keys] with
        them; in at least float32.

    Raises:
        EngineError: Scores cancel, or content terms lack the input.
    """
    if scores_cancel(layer):
        raise EngineError(f"attention cannot be computed from scores: {CANCELS}")
    grid = layer.spec.padded_size(size)
    dtype = score_dtype(layer, grid)
    queries = queries.to(dtype)
    encoding = relative_encoding(relative_positions(queries, key_positions(grid, like=queries)))
    if layer.axis_scores is None:
        scores = positional_scores(encoding, head_vectors(layer.alpha.to(dtype), layer.centers.to(dtype)))
    else:
        scores = layer.axis_scores.scores(queries, grid)
    if layer.content is None:
        return scores.softmax(dim=-1).to(layer.regime.dtype)
    if padded is None:
        raise EngineError("the layer has content terms, so its attention depends on the input: pass x")
    keys = padded.flatten(2).transpose(1, 2)
    from_content = layer.content.scores(keys[:, key_numbers(queries, grid)], keys, encoding)
    return (scores + from_content).softmax(dim=-1).to(layer.regime.dtype)


def score_dtype(layer: LayerValues, grid: Size) -> torch.dtype:
    """Precision of the scores: float32 only where they are positional and make no error there."""
    if layer.content is not None or layer.axis_scores is not None:
        return torch.float64
    return layer.regime.score_dtype(grid)


def attention_maps(layer: LayerValues, size: Size, queries: Tensor, padded: Tensor | None) -> Tensor:
    """As ``attention_probabilities``, computed in chunks that stay under the layer's memory limit.

    Raises:
        EngineError: The maps themselves would exceed it.
    """
    batch = 1 if padded is None else padded.shape[0]
    chunk = _at_a_time(layer, size, len(queries), batch=batch, is_kept=True, has_values=False)
    maps = None
    for start in range(0, len(queries), max(chunk, 1)):
        part = attention_probabilities(layer, size, queries[start : start + chunk], padded)
        if maps is None:
            maps = part.new_empty(*part.shape[:-3], len(queries), *part.shape[-2:])
        maps[..., start : start + chunk, :, :] = part
    return attention_probabilities(layer, size, queries, padded) if maps is None else maps


def project_values(layer: LayerValues, padded: Tensor) -> Tensor:
    """Values W_val^(h) x_k of all heads and keys, with W_val^(h) the kernel's slice at the head's tap.

    Args:
        layer: The layer.
        padded: [batch, in_channels, *padded size].

    Returns:
        [num_heads, num_keys, batch, out_channels].
    """
    groups = layer.spec.groups
    slices = torch.unflatten(layer.kernel.to(padded.dtype).flatten(2), 0, (groups, -1))
    pixels = torch.unflatten(padded.flatten(2), 1, (groups, -1))
    return torch.einsum("goch,bgck->hkbgo", slices, pixels).flatten(3)


def bytes_needed(layer: LayerValues, size: Size, *, batch: int) -> tuple[int, int, int]:
    """Bytes of a batch's values of all heads, of one query while it is computed, and of its probabilities.

    A query's are its encoding, scores and probabilities; the latter are kept by a backward pass or a caller.
    """
    spec, grid = layer.spec, layer.spec.padded_size(size)
    keys, element = math.prod(grid), layer.regime.dtype.itemsize
    scores = spec.num_heads * keys * (1 if layer.content is None else batch)
    query = (2 * encoding_dim(spec.axes) * keys + 3 * scores) * score_dtype(layer, grid).itemsize
    return spec.num_heads * keys * batch * spec.out_channels * element, query, scores * element


def _room(layer: LayerValues, fixed: int) -> int:
    """Bytes for the queries that are taken at a time, beside those that are held anyway."""
    return min(layer.memory_limit - fixed, _NEAR if layer.weight.device.type == "cpu" else layer.memory_limit)


def _at_a_time(
    layer: LayerValues, size: Size, queries: int, *, batch: int, is_kept: bool, has_values: bool = True
) -> int:
    """Queries to compute at a time, at most ``queries``.

    Raises:
        EngineError: Not even one query at a time stays under the layer's memory limit.
    """
    values, query, kept = bytes_needed(layer, size, batch=batch)
    fixed = (values if has_values else 0) + (queries * kept if is_kept else 0)
    if fixed + query > layer.memory_limit:
        keys = math.prod(layer.spec.padded_size(size))
        raise MemoryLimitError(
            f"the literal engine needs {format_bytes(fixed + query)} for {layer.spec.num_heads} heads, {queries:,} "
            f"queries, {keys:,} keys, batch {batch}{', all of whose probabilities are kept' if is_kept else ''}; "
            f"memory_limit allows {format_bytes(layer.memory_limit)}: raise it, or take the engine that "
            "layer.explain(size) names"
        )
    return min(queries, max(_room(layer, fixed) // query, 1))


def _is_differentiated(layer: LayerValues, x: Tensor) -> bool:
    wanted = any(tensor is not None and tensor.requires_grad for tensor in (x, layer.weight, layer.bias))
    return torch.is_grad_enabled() and (wanted or layer.trains_positions or layer.content is not None)


def _mix(probabilities: Tensor, values: Tensor, out_channels: int) -> Tensor:
    """Sums over heads and keys: [batch, num_queries, out_channels].

    Args:
        probabilities: [num_queries, num_heads, num_keys], or with a batch dimension in front.
        values: [num_heads * num_keys, batch * out_channels].
        out_channels: Channels of the output.
    """
    weights = probabilities.flatten(-2)
    if weights.ndim == 2:
        return torch.unflatten(weights @ values, 1, (-1, out_channels)).transpose(0, 1)
    return weights @ torch.unflatten(values, 1, (-1, out_channels)).transpose(0, 1)
