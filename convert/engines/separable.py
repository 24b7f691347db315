"""The separable engine: a softmax along the rows, a softmax along the columns.

If a head's positional score is a sum of a row term and a column term, its exponential is a product, and so is the
sum over the grid that normalises it. The softmax over all keys is then the outer product of two softmaxes:

    softmax_k(a(k_1) + b(k_2)) = exp a(k_1) exp b(k_2) / (sum exp a)(sum exp b) = R[q_1, k_1] C[q_2, k_2]

so that head h reads R_h X C_h^T, and

    Attention(X) = sum_h W_h (R_h X C_h^T) = sum_C ( sum over heads with column table C of W_h (R_h X) ) C^T

The quadratic score -alpha |delta - Delta|^2 is such a sum for any real centre and any alpha of each head's own, and so
are learned tables. The product R_h X is computed once for all heads with the same row table, the product with C once
for all heads with the same column table.

``proofs/claims/computing/separability.py`` proves that the softmax factors.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..bounds.rounding import separable_error
from ..heads.values import AttentionLayer
from ..spec import Size
from ..transforms import is_traced
from .base import Cost, Engine, pad_as_convolution, positions_are_trained
from .convolution import Geometry, convolve, is_channels_last, laid_out_like
from .passes import Axis, Passes, cheapest_passes, stencils_are_fast
from .stencil import keys_above_zero

_CHUNK_BYTES = 4 * 2**20  # of one intermediate result: larger ones fall out of the cache


@dataclass(frozen=True)
class _Tables:
    """The distinct attentions of a layer along the two axes, and which heads use them.

    Attributes:
        passes: The distinct attentions along the rows, and along the columns.
        heads: For each attention along the columns, pairs of a head and the number of its attention along the rows.
    """

    passes: Passes
    heads: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that the tables hold."""
        return self.passes.nbytes


class SeparableEngine(Engine):
    """Row tables, channels, column tables."""

    name: ClassVar[str] = "separable"
    summary: ClassVar[str] = "a softmax along rows and one along columns for each head, whose product is the attention"

    def refusal(self, layer: AttentionLayer) -> str | None:
        """It needs scores that do not depend on the image."""
        return "the layer has content terms" if layer.content is not None else None

    def cost(self, layer: AttentionLayer, size: Size, *, batch: int = 1) -> Cost:
        """Both passes over all distinct tables, and the channels in between."""
        spec, output, grid = layer.spec, layer.spec.output_size(size), layer.spec.padded_size(size)
        row_heads = len(set(_table_names(layer)[0]))
        row_keys, column_keys = (_keys_read(layer, grid[axis], axis) for axis in (0, 1))
        rows = spec.in_channels * output.rows * row_keys * grid.columns
        mixing = spec.num_heads * spec.out_channels * spec.in_channels // spec.groups * output.rows * grid.columns
        columns = spec.out_channels * output.rows * output.columns * column_keys
        widest = max(spec.in_channels, spec.out_channels) * output.rows * grid.columns
        held = (row_heads + 2) * min(
            batch, _images(layer, size)
        ) * widest + batch * spec.in_channels * grid.rows * grid.columns
        return Cost(2 * batch * (rows + mixing + columns), held * layer.regime.dtype.itemsize)

    def error(self, layer: AttentionLayer) -> float:
        """``rounding.separable_error``."""
        return separable_error(layer)

    def attend(self, layer: AttentionLayer, x: Tensor) -> Tensor:
        """Computes the layer."""
        batch, _, rows, columns = x.shape
        size = Size(rows, columns)
        tables = _tables(layer, size, batch)
        source = pad_as_convolution(layer.spec, x).to(layer.regime.dtype, memory_format=tables.passes.memory_format)
        weight = head_weights(layer, source.dtype)
        images = [source] if is_traced() else torch.split(source, _images(layer, size))
        parts = [_attend(weight, tables, part) for part in images]
        output = torch.cat(parts) if len(parts) > 1 else parts[0]
        if layer.bias is not None:
            output = output + layer.bias.to(output.dtype).view(-1, 1, 1)
        return laid_out_like(x, output.to(x.dtype))


def head_weights(layer: AttentionLayer, dtype: torch.dtype) -> Tensor:
    """The value projections, [num_heads, groups, out_channels / groups, in_channels / groups]."""
    weight = layer.weight.to(dtype).flatten(2).permute(2, 0, 1)
    return torch.unflatten(weight, 1, (layer.spec.groups, -1)).contiguous()


def axis_probabilities(layer: AttentionLayer, size: Size, axis: int) -> Tensor:
    """Softmax of every head along one axis, computed in double precision: [num_heads, queries, keys]."""
    device = layer.alpha.device
    num_keys = layer.spec.padded_size(size)[axis]
    num_queries = layer.spec.output_size(size)[axis]
    steps = torch.arange(num_queries, dtype=torch.float64, device=device)
    queries = layer.spec.middle[axis] + layer.spec.stride[axis] * steps
    if layer.axis_scores is not None:
        scores = layer.axis_scores.along(axis, queries, num_keys)
    else:
        targets = queries + layer.centers.double()[:, axis, None]
        keys = torch.arange(num_keys, dtype=torch.float64, device=device)
        scores = -layer.alpha.double()[:, None, None] * (keys - targets.unsqueeze(-1)).square()
    return scores.softmax(dim=-1).to(layer.regime.dtype)


def _is_at_rest(layer: AttentionLayer) -> bool:
    """Whether the tables depend on nothing that training changes, and on values that are known."""
    return layer.axis_scores is None and layer.regime.is_read and not positions_are_trained(layer)


def _table_names(layer: AttentionLayer) -> tuple[list[object], list[object]]:
    """For each head, what its row table and its column table are determined by; equal where they coincide."""
    if not _is_at_rest(layer):
        heads: list[object] = list(range(layer.spec.num_heads))
        return heads, heads
    pairs = list(zip(layer.regime.alpha, layer.regime.centers, strict=True))
    return [(alpha, center[0]) for alpha, center in pairs], [(alpha, center[1]) for alpha, center in pairs]


def _keys_read(layer: AttentionLayer, keys: int, axis: int) -> int:
    """Keys along one axis that a query reads with a probability above zero, over all distinct tables."""
    names = set(_table_names(layer)[axis])
    if not _is_at_rest(layer):
        return len(names) * keys
    return sum(keys_above_zero(alpha, keys, layer.regime.dtype) for alpha, _ in cast(set[tuple[float, float]], names))


def _tables(layer: AttentionLayer, size: Size, batch: int) -> _Tables:
    """The distinct tables; kept as long as the layer's positions and the size stay, unless they are trained."""
    if not _is_at_rest(layer):
        return _make_tables(layer, size, batch)
    key = ("separable", size, batch)
    return layer.regime.remember(key, lambda: _make_tables(layer, size, batch))


def _make_tables(layer: AttentionLayer, size: Size, batch: int) -> _Tables:
    spec, dtype = layer.spec, layer.regime.dtype
    axes = Axis.of(spec, size, 0), Axis.of(spec, size, 1)
    names = _table_names(layer)
    first = [{name: head for head, name in reversed(list(enumerate(part)))} for part in names]
    heads = [[first[axis][name] for name in dict.fromkeys(names[axis])] for axis in (0, 1)]
    probabilities = [axes[axis].seen(axis_probabilities(layer, size, axis)) for axis in (0, 1)]
    rows, columns = ([probabilities[axis][head] for head in heads[axis]] for axis in (0, 1))
    stencils = None
    if _is_at_rest(layer) and stencils_are_fast(layer.weight.device, dtype):
        alpha, centers = layer.regime.alpha, layer.regime.centers
        row_stencils, column_stencils = (
            [axes[axis].stencil(alpha[head], centers[head][axis], dtype) for head in heads[axis]] for axis in (0, 1)
        )
        stencils = row_stencils, column_stencils
    images = batch * spec.in_channels, batch * spec.out_channels
    passes = cheapest_passes((rows, columns), stencils, images=images, kept=_is_at_rest(layer))
    return _Tables(passes, _users(names))


def _users(names: tuple[list[object], list[object]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """``_Tables.heads`` for the names of each head's row and column tables."""
    row_numbers, column_numbers = ({name: n for n, name in enumerate(dict.fromkeys(part))} for part in names)
    users = defaultdict(list)
    for head, (row, column) in enumerate(zip(*names, strict=True)):
        users[column_numbers[column]].append((head, row_numbers[row]))
    return tuple(tuple(users[number]) for number in range(len(column_numbers)))


def _images(layer: AttentionLayer, size: Size) -> int:
    """Images at a time, so that an intermediate result stays in the cache, and under the layer's memory limit."""
    spec, rows, columns = layer.spec, layer.spec.output_size(size).rows, layer.spec.padded_size(size).columns
    image = max(spec.in_channels, spec.out_channels) * rows * columns * layer.regime.dtype.itemsize
    return max(1, min(_CHUNK_BYTES, layer.memory_limit) // image)


def _attend(weight: Tensor, tables: _Tables, source: Tensor) -> Tensor:
    """sum over column tables C of ( sum over their heads of W_h (R_h X) ) C^T.

    Args:
        weight: [num_heads, groups, out_channels / groups, in_channels / groups].
        tables: The distinct tables.
        source: [batch, in_channels, rows, columns], without the zero padding.

    Returns:
        [batch, out_channels, output rows, output columns].
    """
    read: dict[int, Tensor] = {}
    output: Tensor | None = None
    for column, heads in zip(tables.passes.columns, tables.heads, strict=True):
        mixed: Tensor | None = None
        for head, row in heads:
            if row not in read:
                read[row] = tables.passes.rows[row].rows_of(source)
            mixed = _plus(mixed, _project(weight[head], read[row]))
            if len(tables.passes.rows) == len(weight):
                del read[row]  # no other head reads it
        if mixed is not None:
            output = _plus(output, column.columns_of(mixed))
    return source if output is None else output


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    """The sum so far and one more part, in the memory of the sum."""
    return part if total is None else total.add_(part)


def _project(weight: Tensor, x: Tensor) -> Tensor:
    """W x at every pixel: [batch, in_channels, rows, columns] -> [batch, out_channels, rows, columns].

    Args:
        weight: [groups, out_channels / groups, in_channels / groups].
        x: [batch, in_channels, rows, columns].
    """
    groups, _, channels = weight.shape
    if is_channels_last(x):
        return convolve(x, weight.flatten(0, 1)[..., None, None], None, Geometry(groups=groups))
    pixels = torch.unflatten(x.flatten(2), 1, (groups, channels))
    projected = weight * pixels if channels == 1 else weight @ pixels
    return torch.unflatten(projected.flatten(1, 2), 2, x.shape[2:])
