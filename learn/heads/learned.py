"""Learned scores: a free number for each row offset and each column offset of a head (the article's Figure 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...convert.heads.axis_scores import AxisScores
from .grid import Grid
from .positions import SeparablePositions


class Learned(SeparablePositions):
    """score(delta) = rows[delta_1] + columns[delta_2].

    Bello et al. and Ramachandran et al. learn vectors of the offsets, and one vector a head to compare them with.
    Without content a table holds all that these products can be.

    Args:
        num_heads: Heads.
        reach: Most keys along an axis.
        sharpness: Standard deviation of the first scores.

    Attributes:
        table: The scores, [num_heads, 2 reach - 1] for each axis.
    """

    def __init__(self, num_heads: int, *, reach: int, sharpness: float = 1.0) -> None:
        super().__init__(num_heads)
        self.table = AxisScores(*(torch.randn(num_heads, 2 * reach - 1) * sharpness for _ in range(2)))

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The tables' entries at the offsets.

        Raises:
            GeometryError: The grid is larger than the tables.
        """
        rows = torch.arange(grid.rows, device=self.table.tables[0].device) + grid.padding
        columns = torch.arange(grid.columns, device=rows.device) + grid.padding
        dtype = self.table.tables[0].dtype
        return (
            self.table.along(0, rows, grid.key_rows).to(dtype),
            self.table.along(1, columns, grid.key_columns).to(dtype),
        )
