"""Learned positional scores: one table for the rows, one for the columns.

    score_h(delta) = rows[h, delta_1] + columns[h, delta_2]

This is the learned relative encoding of the article (its Figure 4) without content: every head has a free number
for each row offset and for each column offset. It replaces the quadratic encoding where a layer has it. A sequence has
columns only, a volume has planes, rows and columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import GeometryError
from ..size import Size

AXES = ("planes", "rows", "columns")  # the last of them are a layer's; parameters have these names


class AxisScores(nn.Module):
    """Tables of scores over the offsets -(n - 1), ..., n - 1 along each axis, as parameters named after the axes.

    Args:
        *tables: Scores of the offsets along each axis, [num_heads, 2 * largest padded length - 1].

    Raises:
        GeometryError: The tables have other shapes.
    """

    def __init__(self, *tables: Tensor) -> None:
        super().__init__()
        if not all(table.ndim == 2 and len(table) == len(tables[0]) for table in tables):
            shapes = ", ".join(str(list(table.shape)) for table in tables)
            raise GeometryError(f"score tables must be [heads, offsets]; got {shapes}")
        if not all(table.shape[1] % 2 for table in tables):
            raise GeometryError("score tables must have an odd number of offsets, from -(n - 1) to n - 1")
        self._names = AXES[-len(tables) :]
        for name, table in zip(self._names, tables, strict=True):
            self.register_parameter(name, nn.Parameter(table.detach().clone()))

    @property
    def tables(self) -> tuple[nn.Parameter, ...]:
        """The table of each axis."""
        return tuple(self.get_parameter(name) for name in self._names)

    def along(self, axis: int, queries: Tensor, num_keys: int) -> Tensor:
        """Scores along one axis, in float64.

        Args:
            axis: Number of the axis; of an image 0 for rows, 1 for columns.
            queries: Positions of the queries on this axis, integers, [num_queries].
            num_keys: Keys on this axis.

        Returns:
            [num_heads, num_queries, num_keys].

        Raises:
            GeometryError: The axis has more pixels than the table has offsets for.
        """
        table = self.tables[axis]
        largest = (table.shape[1] + 1) // 2
        if num_keys > largest:
            raise GeometryError(f"the padded input has {num_keys} pixels along axis {axis}; the tables reach {largest}")
        offsets = torch.arange(num_keys, device=table.device) - queries.long().unsqueeze(1)
        return table.double()[:, offsets + largest - 1]

    def scores(self, queries: Tensor, grid: Size) -> Tensor:
        """Scores of every query and key.

        Args:
            queries: Positions on the padded input, [num_queries, axes].
            grid: Size of the padded input.

        Returns:
            [num_queries, num_heads, num_keys], in float64.
        """
        first, *others = (self.along(axis, queries[:, axis], keys).transpose(0, 1) for axis, keys in enumerate(grid))
        for scores in others:
            first = (first.unsqueeze(-1) + scores.unsqueeze(-2)).flatten(2)
        return first
