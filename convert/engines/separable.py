"""The separable engine: a softmax along the rows, a softmax along the columns.

If a head's positional score is a sum of a row term and a column term, its exponential is a product, and so is the
sum over the grid that normalises it. The softmax over all keys is then the outer product of two softmaxes:

    softmax_k(a(k_1) + b(k_2)) = exp a(k_1) exp b(k_2) / (sum exp a)(sum exp b) = R[q_1, k_1] C[q_2, k_2]

so that head h reads R_h X C_h^T, and

    Attention(X) = sum_h W_h (R_h X C_h^T) = sum_C ( sum over heads with column table C of W_h (R_h X) ) C^T

The quadratic score -alpha |delta - Delta|^2 is such a sum for any real centre and any alpha of each head's own, and so
are learned tables; along n axes there are n terms, and n softmaxes. The product R_h X is computed once for all heads
with the same row table, the product with C once for all heads with the same column table. While positions are trained,
no two heads have the same for long, and ``sums/head_sum.py`` computes the sum and its derivatives.

``proofs/claims/computing/separability.py`` proves that the softmax factors.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..bounds.rounding import separable_error
from ..heads.values import AttentionLayer
from ..size import Size
from ..transforms import is_differentiating, is_traced, is_transformed
from .axes import axis_probabilities, without_far_keys, without_negligible
from .base import Cost, Engine, pad_as_convolution, positions_are_trained
from .content import attend_content, content_cost, content_refusal, without_content
from .convolution import Geometry, convolve, is_channels_last, laid_out_like
from .passes import Axis, Passes, cheapest_passes, stencils_are_fast
from .stencil import keys_read
from .sums.head_sum import head_sum, head_weights

_CHUNK_BYTES = 4 * 2**20  # of one intermediate result: larger ones fall out of the cache


_Numbers = tuple[int, ...]


@dataclass(frozen=True)
class _Tables:
    """The distinct attentions of a layer along its axes, and which heads use them.

    Attributes:
        passes: The distinct attentions along each axis.
        heads: For each attention along the last axis, pairs of a head and the numbers of its attentions along the
            others.
    """

    passes: Passes
    heads: tuple[tuple[tuple[int, _Numbers], ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that the tables hold."""
        return self.passes.nbytes


class SeparableEngine(Engine):
    """Row tables, channels, column tables."""

    name: ClassVar[str] = "separable"
    summary: ClassVar[str] = "a softmax along rows and one along columns for each head, whose product is the attention"

    def refusal(self, layer: AttentionLayer) -> str | None:
        """It needs positional scores that are a sum of one term an axis; ``content.py`` computes the others."""
        return None if layer.content is None else content_refusal(layer, layer.content)

    def cost(self, layer: AttentionLayer, size: Size, *, batch: int = 1) -> Cost:
        """Both passes over all distinct tables, and the channels in between; what content costs comes on top."""
        if layer.content is not None:
            behind = content_cost(layer, layer.content, size, batch=batch)
            return (
                behind if layer.content.gate is None else behind + self.cost(without_content(layer), size, batch=batch)
            )
        spec, output, grid = layer.spec, layer.spec.output_size(size), layer.spec.padded_size(size)
        names = _table_names(layer)
        leading, lengths = 0, list(grid)
        for axis in range(spec.axes - 1):  # each distinct head along the axes before needs its own pass
            lengths[axis] = output[axis]
            repeats = len(set(zip(*names[:axis], strict=True))) if axis else 1
            keys = _keys_read(layer, grid[axis], axis)
            leading += spec.in_channels * repeats * keys * math.prod(lengths)
        mixed = math.prod(lengths)
        mixing = spec.num_heads * spec.out_channels * spec.in_channels // spec.groups * mixed
        last = spec.out_channels * math.prod(output) * _keys_read(layer, grid[-1], spec.axes - 1)
        widest = max(spec.in_channels, spec.out_channels) * mixed
        distinct = len(set(zip(*names[:-1], strict=True)))
        held = (distinct + 2) * min(batch, _images(layer, size)) * widest + batch * spec.in_channels * math.prod(grid)
        return Cost(2 * batch * (leading + mixing + last), held * layer.regime.dtype.itemsize)

    def error(self, layer: AttentionLayer) -> float:
        """``rounding.separable_error``."""
        return separable_error(layer)

    def attend(self, layer: AttentionLayer, x: Tensor) -> Tensor:
        """Computes the layer."""
        if layer.content is not None:
            return attend_content(layer, layer.content, x, self.attend)
        output = _by_head(layer, x) if _is_by_head(layer, x) else _by_table(layer, x)
        if layer.bias is not None:
            output = output + layer.bias.to(output.dtype).view(-1, *(1,) * layer.spec.axes)
        return laid_out_like(x, output.to(x.dtype))


def _is_by_head(layer: AttentionLayer, x: Tensor) -> bool:
    """Whether the heads' tables are taken to differ, and differentiated by hand: on a CPU, and not in a transform."""
    return not _is_at_rest(layer) and x.is_cpu and not is_transformed() and not is_differentiating()


def _by_head(layer: AttentionLayer, x: Tensor) -> Tensor:
    """sum_h W_h (R_h X C_h^T), each head with tables of its own."""
    spec, size = layer.spec, Size(*x.shape[2:])
    source = pad_as_convolution(spec, x).to(layer.regime.dtype)
    found = [axis_probabilities(layer, size, axis) for axis in range(spec.axes)]
    tables = [Axis.of(spec, size, axis).seen(without_negligible(table)) for axis, table in enumerate(found)]
    return head_sum(source, head_weights(layer, source.dtype), tables)


def _by_table(layer: AttentionLayer, x: Tensor) -> Tensor:
    """The same, where heads with equal tables share the passes."""
    size = Size(*x.shape[2:])
    tables = _tables(layer, size, x.shape[0])
    source = pad_as_convolution(layer.spec, x).to(layer.regime.dtype, memory_format=tables.passes.memory_format)
    weight = head_weights(layer, source.dtype)
    images = [source] if is_traced() else torch.split(source, _images(layer, size))
    parts = [_attend(weight, tables, part) for part in images]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _is_at_rest(layer: AttentionLayer) -> bool:
    """Whether the tables depend on nothing that training changes, and on values that are known."""
    return layer.axis_scores is None and layer.regime.is_read and not positions_are_trained(layer)


def _table_names(layer: AttentionLayer) -> list[list[object]]:
    """For each axis and head, what the head's table along the axis is determined by; equal where tables coincide."""
    if not _is_at_rest(layer):
        return [list(range(layer.spec.num_heads))] * layer.spec.axes
    pairs = list(zip(layer.regime.alpha, layer.regime.centers, strict=True))
    return [[(alpha, center[axis]) for alpha, center in pairs] for axis in range(layer.spec.axes)]


def _keys_read(layer: AttentionLayer, keys: int, axis: int) -> int:
    """Keys along one axis that a query reads with a probability above zero, over all distinct tables."""
    names = set(_table_names(layer)[axis])
    if not _is_at_rest(layer):
        return len(names) * keys
    return sum(keys_read(alpha, keys, layer.regime.dtype) for alpha, _ in cast(set[tuple[float, float]], names))


def _tables(layer: AttentionLayer, size: Size, batch: int) -> _Tables:
    """The distinct tables; kept as long as the layer's positions and the size stay, unless they are trained."""
    if not _is_at_rest(layer):
        return _make_tables(layer, size, batch)
    key = ("separable", size, batch, layer.spec.output_padding)
    return layer.regime.remember(key, lambda: _make_tables(layer, size, batch))


def _make_tables(layer: AttentionLayer, size: Size, batch: int) -> _Tables:
    spec, dtype = layer.spec, layer.regime.dtype
    axes = [Axis.of(spec, size, axis) for axis in range(spec.axes)]
    names = _table_names(layer)
    first = [{name: head for head, name in reversed(list(enumerate(part)))} for part in names]
    heads = [[first[axis][name] for name in dict.fromkeys(part)] for axis, part in enumerate(names)]
    seen = [axis.seen(axis_probabilities(layer, size, number)) for number, axis in enumerate(axes)]
    tables = [[probabilities[head] for head in part] for probabilities, part in zip(seen, heads, strict=True)]
    if _is_at_rest(layer):
        tables = [[without_far_keys(table, dtype) for table in part] for part in tables]
    stencils = None
    if _is_at_rest(layer) and stencils_are_fast(layer.weight.device, dtype):
        alpha, centers = layer.regime.alpha, layer.regime.centers
        stencils = [
            [axis.stencil(alpha[head], centers[head][number], dtype) for head in heads[number]]
            for number, axis in enumerate(axes)
        ]
    images = batch * spec.in_channels, batch * spec.out_channels
    passes = cheapest_passes(tables, stencils, images=images, kept=_is_at_rest(layer))
    return _Tables(passes, _users(names))


def _users(names: list[list[object]]) -> tuple[tuple[tuple[int, _Numbers], ...], ...]:
    """``_Tables.heads`` for the names of each head's tables."""
    numbers = [{name: n for n, name in enumerate(dict.fromkeys(part))} for part in names]
    users = defaultdict(list)
    for head, named in enumerate(zip(*names, strict=True)):
        *leading, last = (number[name] for number, name in zip(numbers, named, strict=True))
        users[last].append((head, tuple(leading)))
    return tuple(tuple(users[number]) for number in range(len(numbers[-1])))


def _images(layer: AttentionLayer, size: Size) -> int:
    """Images at a time, so that an intermediate result stays in the cache, and under the layer's memory limit."""
    spec = layer.spec
    pixels = math.prod((*spec.output_size(size)[:-1], spec.padded_size(size)[-1]))
    image = max(spec.in_channels, spec.out_channels) * pixels * layer.regime.dtype.itemsize
    return max(1, min(_CHUNK_BYTES, layer.memory_limit) // image)


def _attend(weight: Tensor, tables: _Tables, source: Tensor) -> Tensor:
    """sum over column tables C of ( sum over their heads of W_h (R_h X) ) C^T.

    Args:
        weight: [num_heads, groups, out_channels / groups, in_channels / groups].
        tables: The distinct tables.
        source: [batch, in_channels, *size], without the zero padding.

    Returns:
        [batch, out_channels, *output size].
    """
    passes = tables.passes
    read: dict[_Numbers, Tensor] = {(): source}
    distinct = len({numbers for heads in tables.heads for _, numbers in heads})
    output: Tensor | None = None
    for last, heads in enumerate(tables.heads):
        mixed: Tensor | None = None
        for head, numbers in heads:
            mixed = _plus(mixed, _project(weight[head], _read(passes, numbers, read)))
            if numbers and distinct == len(weight):
                del read[numbers]  # no other head reads it
        if mixed is not None:
            output = _plus(output, passes.along(len(passes.axes) - 1, last, mixed))
    return source if output is None else output


def _read(passes: Passes, numbers: _Numbers, read: dict[_Numbers, Tensor]) -> Tensor:
    """What heads with these attentions along the first axes read, computed once."""
    if numbers not in read:
        before = _read(passes, numbers[:-1], read)
        read[numbers] = passes.along(len(numbers) - 1, numbers[-1], before)
    return read[numbers]


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    """The sum so far and one more part, in the memory of the sum."""
    return part if total is None else total.add_(part)


def _project(weight: Tensor, x: Tensor) -> Tensor:
    """W x at every pixel: [batch, in_channels, *size] -> [batch, out_channels, *size].

    Args:
        weight: [groups, out_channels / groups, in_channels / groups].
        x: [batch, in_channels, *size].
    """
    groups, _, channels = weight.shape
    if x.ndim == 4 and is_channels_last(x):
        return convolve(x, weight.flatten(0, 1)[..., None, None], None, Geometry.of(2, groups=groups))
    pixels = torch.unflatten(x.flatten(2), 1, (groups, channels))
    projected = weight * pixels if channels == 1 else weight @ pixels
    return torch.unflatten(projected.flatten(1, 2), 2, x.shape[2:])
