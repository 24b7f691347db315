"""The two passes over an image, along its rows and along its columns, in the cheaper of two forms.

Attention along one axis is a product with a table of probabilities (``axes.py``) or, where the score is quadratic, a
stencil (``stencil.py``). Costs are in multiply-adds of a large matrix product, measured on CPUs; they decide between
two forms with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..spec import ConvSpec, Size
from ..transforms import is_traced, is_transformed
from .axes import AxisTable
from .base import convolution_padding
from .stencil import Stencil

_REORDERING = 40  # bringing the channels of a pixel together, and apart again
_SHUFFLING = 18  # the same within one convolution
_WIDEST_PADDING = 6  # with more columns of zeros, torch takes a slow way through images that are not channels last
_MATRIX = 10_000  # multiplying one more small matrix


@dataclass(frozen=True)
class Axis:
    """Queries and keys along one axis of a layer, for one size of its input.

    Attributes:
        keys: Pixels of the padded axis.
        queries: Number of queries, at start, start + stride, ... of the padded axis.
        start: The first query.
        stride: Pixels between queries.
        zeros: Pixels of zero padding at each end that the images lack.
    """

    keys: int
    queries: int
    start: int
    stride: int
    zeros: int

    @classmethod
    def of(cls, spec: ConvSpec, size: Size, axis: int) -> Axis:
        """Builds the axis along the rows (0) or the columns (1) of a layer's input of this size."""
        zeros = convolution_padding(spec)[axis]
        return cls(
            spec.padded_size(size)[axis], spec.output_size(size)[axis], spec.middle[axis], spec.stride[axis], zeros
        )

    def seen(self, probabilities: Tensor) -> Tensor:
        """Drops the probabilities of padding whose values are zero: [..., keys] -> [..., pixels]."""
        return probabilities.narrow(-1, self.zeros, self.keys - 2 * self.zeros)

    def stencil(self, alpha: float, center: float, dtype: torch.dtype) -> Stencil | None:
        """A head's probabilities as a stencil, or None if there is no such stencil."""
        return Stencil.of(
            alpha,
            self.start + center,
            keys=self.keys,
            queries=self.queries,
            stride=self.stride,
            zeros=self.zeros,
            dtype=dtype,
        )


class AxisAttention(Protocol):
    """One head's attention along one axis."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""

    def rows_of(self, x: Tensor) -> Tensor:
        """[batch, channels, keys, columns] -> [batch, channels, queries, columns]."""

    def columns_of(self, x: Tensor) -> Tensor:
        """[batch, channels, rows, keys] -> [batch, channels, rows, queries]."""


@dataclass(frozen=True)
class Passes:
    """The attention of a layer's heads along both axes.

    Attributes:
        rows: Along the rows, for each distinct table of row probabilities.
        columns: Along the columns, likewise.
        memory_format: Of the images that they are fastest on.
    """

    rows: tuple[AxisAttention, ...]
    columns: tuple[AxisAttention, ...]
    memory_format: torch.memory_format

    @property
    def nbytes(self) -> int:
        """Bytes that the passes hold."""
        return sum(attention.nbytes for attention in (*self.rows, *self.columns))


def stencils_are_fast(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch convolves images of this dtype channel by channel faster than it multiplies tables."""
    if is_transformed() or device.type != "cpu" or dtype != torch.float32:
        return False
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def cheapest_passes(
    tables: tuple[Sequence[Tensor], Sequence[Tensor]],
    stencils: tuple[Sequence[Stencil | None], Sequence[Stencil | None]] | None,
    *,
    images: tuple[int, int],
    kept: bool = True,
) -> Passes:
    """The cheapest form of the passes along rows and, on their results, along columns.

    Args:
        tables: Probabilities [queries, pixels] of each head along the rows, and along the columns.
        stencils: The same as stencils, where there are; None if they are not wanted.
        images: Images, of one channel each, that the tables along the rows, and along the columns, are applied to.
        kept: Whether the passes are kept for later calls.
    """
    if is_traced():  # sizes are symbols, and so would costs be
        return _tables_only(tables)
    best, *others = _forms(tables, stencils, images, kept)
    for form in others:  # not min(): torch.compile does not trace its key
        best = form if form[0] < best[0] else best
    return best[1]


def _tables_only(tables: tuple[Sequence[Tensor], Sequence[Tensor]]) -> Passes:
    """Tables in one block each."""
    rows, columns = (tuple(AxisTable.dense(table) for table in part) for part in tables)
    return Passes(rows, columns, torch.contiguous_format)


def _forms(
    tables: tuple[Sequence[Tensor], Sequence[Tensor]],
    stencils: tuple[Sequence[Stencil | None], Sequence[Stencil | None]] | None,
    images: tuple[int, int],
    kept: bool = True,
) -> Iterator[tuple[int, Passes]]:
    """Every form with its cost: tables, stencils along the rows alone, stencils on either memory format."""
    (queries, rows), (_, columns) = (part[0].shape for part in tables)
    lines = images[0] * columns, images[1] * queries
    row_tables, column_tables = (
        tuple(AxisTable.of(table, lines[axis], kept=kept) for table in tables[axis]) for axis in (0, 1)
    )
    table_costs = [sum(table.cost(lines[0]) + _MATRIX * images[0] for table in row_tables)]
    table_costs += [sum(table.cost(lines[1]) for table in column_tables)]
    yield sum(table_costs), Passes(row_tables, column_tables, torch.contiguous_format)
    if stencils is None:
        return
    row_stencils, column_stencils = (tuple(stencil for stencil in part if stencil is not None) for part in stencils)
    if len(row_stencils) < len(row_tables):
        return
    cost = sum(stencil.cost(lines[0]) for stencil in row_stencils)
    shuffling = _SHUFFLING * lines[0] * queries * len(row_stencils)
    yield cost + shuffling + table_costs[1], Passes(row_stencils, column_tables, torch.contiguous_format)
    if len(column_stencils) < len(column_tables):
        return
    cost += sum(stencil.cost(lines[1]) for stencil in column_stencils)
    yield cost + _REORDERING * lines[0] * rows, Passes(row_stencils, column_stencils, torch.channels_last)
    if all(stencil.padding <= _WIDEST_PADDING for stencil in column_stencils):
        shuffling += _SHUFFLING * sum(lines[1] * len(stencil.scale) for stencil in column_stencils)
        yield cost + shuffling, Passes(row_stencils, column_stencils, torch.contiguous_format)
