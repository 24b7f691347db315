"""Learned positional scores: one table for the rows, one for the columns.

    score_h(delta) = rows[h, delta_1] + columns[h, delta_2]

This is the learned relative encoding of the article (its Figure 4) without content: every head has a free number
for each row offset and for each column offset. It replaces the quadratic encoding where a layer has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import GeometryError
from ..spec import Size


class AxisScores(nn.Module):
    """Tables of scores over the offsets -(n - 1), ..., n - 1 along each axis.

    Args:
        rows: Scores of row offsets, [num_heads, 2 * largest padded height - 1].
        columns: Scores of column offsets, [num_heads, 2 * largest padded width - 1].

    Raises:
        GeometryError: The tables have other shapes.
    """

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        super().__init__()
        if rows.ndim != 2 or columns.ndim != 2 or len(rows) != len(columns):
            raise GeometryError(f"score tables must be [heads, offsets]; got {list(rows.shape)}, {list(columns.shape)}")
        if not (rows.shape[1] % 2 and columns.shape[1] % 2):
            raise GeometryError("score tables must have an odd number of offsets, from -(n - 1) to n - 1")
        self.rows = nn.Parameter(rows.detach().clone())
        self.columns = nn.Parameter(columns.detach().clone())

    def along(self, axis: int, queries: Tensor, num_keys: int) -> Tensor:
        """Scores along one axis, in float64.

        Args:
            axis: 0 for rows, 1 for columns.
            queries: Positions of the queries on this axis, integers, [num_queries].
            num_keys: Keys on this axis.

        Returns:
            [num_heads, num_queries, num_keys].

        Raises:
            GeometryError: The axis has more pixels than the table has offsets for.
        """
        table = (self.rows, self.columns)[axis]
        largest = (table.shape[1] + 1) // 2
        if num_keys > largest:
            raise GeometryError(f"the padded input has {num_keys} pixels along axis {axis}; the tables reach {largest}")
        offsets = torch.arange(num_keys, device=table.device) - queries.long().unsqueeze(1)
        return table.double()[:, offsets + largest - 1]

    def scores(self, queries: Tensor, grid: Size) -> Tensor:
        """Scores of every query and key.

        Args:
            queries: Positions on the padded input, [num_queries, 2].
            grid: Size of the padded input.

        Returns:
            [num_queries, num_heads, num_keys], in float64.
        """
        rows, columns = (self.along(axis, queries[:, axis], grid[axis]).transpose(0, 1) for axis in (0, 1))
        return (rows.unsqueeze(-1) + columns.unsqueeze(-2)).flatten(2)
