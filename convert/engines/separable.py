"""The separable engine: a softmax along the rows, a softmax along the columns.

If a head's positional score is a sum of a row term and a column term, its exponential is a product, and so is the
sum over the grid that normalises it. The softmax over all keys is then the outer product of two softmaxes:

    softmax_k(a(k_1) + b(k_2)) = exp a(k_1) exp b(k_2) / (sum exp a)(sum exp b) = R[q_1, k_1] C[q_2, k_2]

so that head h reads R_h X C_h^T, and

    Attention(X) = sum_h W_h (R_h X C_h^T) = sum_C ( sum over heads with column table C of W_h (R_h X) ) C^T

The quadratic score -alpha |delta - Delta|^2 is such a sum for any real centre and any alpha of each head's own, and so
are learned tables; along n axes there are n terms, and n softmaxes. Where positions rest, the product R_h X is computed
once for all heads with the same row table, the product with C once for all heads with the same column table. While they
are trained, no two heads have the same for long, and ``head_sum.py`` computes the sum.

``proofs/claims/computing/separability.py`` proves that the softmax factors.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ..arguments import Size
from ..bounds.rounding import separable_error
from ..context import is_traced
from ..heads.values import LayerValues
from .axes import Axis, axis_probabilities, pad_for_tables, table, without_negligible
from .base import Cost, Engine
from .content import attend_content, content_cost
from .convolution import laid_out_like
from .head_sum import bytes_held, head_sum, head_weights, project
from .stencil import keys_read

_CHUNK_BYTES = 4 * 2**20  # of one intermediate result: larger ones fall out of the cache


class SeparableEngine(Engine):
    """Row tables, channels, column tables."""

    name: ClassVar[str] = "separable"
    summary: ClassVar[str] = "a softmax along rows and one along columns for each head, whose product is the attention"

    def refusal(self, layer: LayerValues) -> str | None:
        """It needs positional scores that are a sum of one term an axis; ``content.py`` computes the others."""
        if layer.content is not None and layer.axis_scores is not None:
            return "the layer has content terms in one softmax with learned tables"
        return None

    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """The passes over all distinct tables, and the channels in between; with content, all pairs."""
        if layer.content is not None:
            return content_cost(layer, layer.content, size, batch=batch)
        spec, output, grid = layer.spec, layer.spec.output_size(size), layer.spec.padded_size(size)
        names = list(zip(*_table_names(layer), strict=True))
        leading, lengths = 0, list(grid)
        for axis in range(spec.axes - 1):  # each distinct head along the axes before needs its own pass
            lengths[axis] = output[axis]
            repeats = len(set(zip(*names[:axis], strict=True))) if axis else 1
            leading += spec.in_channels * repeats * _keys_read(layer, grid[axis], axis) * math.prod(lengths)
        mixed = math.prod(lengths)
        mixing = spec.num_heads * spec.out_channels * spec.in_channels // spec.groups * mixed
        last = spec.out_channels * math.prod(output) * _keys_read(layer, grid[-1], spec.axes - 1)
        flops = 2 * batch * (leading + mixing + last)
        if _is_at_rest(layer):
            return Cost(flops, _memory(layer, size, batch)[1])
        tables = spec.num_heads * sum(q * k for q, k in zip(output, grid, strict=True))
        return Cost(flops, bytes_held(spec, size, batch, layer.regime.dtype.itemsize) + 2 * 8 * tables)

    def error(self, layer: LayerValues) -> float:
        """``rounding.separable_error``."""
        return separable_error(layer)

    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer."""
        self.check_memory(layer, x)
        if layer.content is not None:
            return attend_content(layer, layer.content, x)
        output = _by_table(layer, x) if _is_at_rest(layer) else _by_head(layer, x)
        if layer.bias is not None:
            output = output + layer.bias.to(output.dtype).view(-1, *(1,) * layer.spec.axes)
        return laid_out_like(x, output.to(x.dtype))


def _is_at_rest(layer: LayerValues) -> bool:
    """Whether the tables are known as numbers."""
    return layer.axis_scores is None and not layer.trains_positions


def _by_head(layer: LayerValues, x: Tensor) -> Tensor:
    """sum_h W_h (R_h X C_h^T), each head with tables of its own."""
    spec, size = layer.spec, Size(*x.shape[2:])
    source = pad_for_tables(spec, x).to(layer.regime.dtype)
    found = [axis_probabilities(layer, size, axis) for axis in range(spec.axes)]
    tables = [Axis.of(spec, size, axis).seen(without_negligible(part)) for axis, part in enumerate(found)]
    return head_sum(source, head_weights(layer, source.dtype), tables)


def _by_table(layer: LayerValues, x: Tensor) -> Tensor:
    """The same, where heads with equal tables share the passes."""
    size = Size(*x.shape[2:])
    source = pad_for_tables(layer.spec, x).to(layer.regime.dtype)
    weight = head_weights(layer, source.dtype)
    images = [source] if is_traced() else torch.split(source, _images(layer, size, x.shape[0]))
    parts = [_attend(layer, size, weight, part) for part in images]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _attend(layer: LayerValues, size: Size, weight: Tensor, source: Tensor) -> Tensor:
    """sum over column tables C of ( sum over their heads of W_h (R_h X) ) C^T.

    Args:
        layer: The layer.
        size: Size of its input.
        weight: [num_heads, groups, out_channels / groups, in_channels / groups].
        source: [batch, in_channels, *pixels], what ``pad_for_tables`` made of its input.

    Returns:
        [batch, out_channels, *output size].
    """
    axes = [Axis.of(layer.spec, size, axis) for axis in range(layer.spec.axes)]
    names = _table_names(layer)
    read: dict[tuple[object, ...], Tensor] = {(): source}

    def along(number: int, name: tuple[float, float], images: Tensor) -> Tensor:
        return table(axes[number], *name, source.dtype, source.device).along(images, number)

    def read_by(leading: tuple[tuple[float, float], ...]) -> Tensor:
        """The values that heads with these tables along the first axes read, computed once."""
        if leading not in read:
            read[leading] = along(len(leading) - 1, leading[-1], read_by(leading[:-1]))
        return read[leading]

    total: Tensor | None = None
    for column in dict.fromkeys(name[-1] for name in names):
        heads = [head for head, name in enumerate(names) if name[-1] == column]
        mixed = project(weight[heads[0]], read_by(names[heads[0]][:-1]))
        for head in heads[1:]:
            mixed = mixed + project(weight[head], read_by(names[head][:-1]))
        part = along(len(axes) - 1, column, mixed)
        total = part if total is None else total + part
    return source if total is None else total


def _table_names(layer: LayerValues) -> list[tuple[tuple[float, float], ...]]:
    """For each head, what determines its table along each axis; equal where tables coincide."""
    if not _is_at_rest(layer):
        return [((head, 0.0),) * layer.spec.axes for head in range(layer.spec.num_heads)]
    pairs = zip(layer.regime.alpha, layer.regime.centers, strict=True)
    return [tuple((alpha, coordinate) for coordinate in center) for alpha, center in pairs]


def _keys_read(layer: LayerValues, keys: int, axis: int) -> int:
    """Keys along one axis that a query reads with a probability above zero, over all distinct tables."""
    names = {name[axis] for name in _table_names(layer)}
    if not _is_at_rest(layer):
        return len(names) * keys
    return sum(keys_read(alpha, keys, layer.regime.dtype) for alpha, _ in names)


def _images(layer: LayerValues, size: Size, batch: int) -> int:
    """Images at a time, so that an intermediate result stays in the cache, and all under the layer's memory limit."""
    return _memory(layer, size, batch)[0]


def _memory(layer: LayerValues, size: Size, batch: int) -> tuple[int, int]:
    """Images at a time, and the bytes that are held then: the padded input, tables, and what heads read."""
    spec, output, grid = layer.spec, layer.spec.output_size(size), layer.spec.padded_size(size)
    names, element = list(zip(*_table_names(layer), strict=True)), layer.regime.dtype.itemsize
    tables = sum(len(set(along)) * q * k for along, q, k in zip(names, output, grid, strict=True))
    fixed = (batch * spec.in_channels * math.prod(grid) + tables) * element
    one = max(spec.in_channels, spec.out_channels) * math.prod((*output[:-1], grid[-1])) * element
    image = (len(set(zip(*names[:-1], strict=True))) + 2) * one
    images = max(1, min(batch, _CHUNK_BYTES // one, (layer.memory_limit - fixed) // image))
    return images, fixed + images * image
