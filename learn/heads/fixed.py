"""Scores of positions as a table of every query and key, for images of one size: what absolute positions come to."""

from __future__ import annotations

from torch import Tensor

from ...convert.errors import GeometryError
from ...convert.size import Size
from .grid import Grid
from .positions import Positions


class Fixed(Positions):
    """A number for each head, query and key.

    Args:
        table: The scores, [num_heads, num_queries, num_keys], row by row.
        size: Rows and columns of the image, whose pixels are queries and keys.

    Attributes:
        table: As above.
        size: As above.
    """

    table: Tensor

    def __init__(self, table: Tensor, size: Size) -> None:
        super().__init__(len(table))
        self.size = size
        self.register_buffer("table", table.detach().clone())

    def scores(self, grid: Grid) -> Tensor:
        """The table.

        Raises:
            GeometryError: The image has another size, or keys beyond its pixels.
        """
        if (grid.rows, grid.columns, grid.padding) != (*self.size, 0):
            raise GeometryError(f"these positions are for images of {self.size}; got {grid}")
        return self.table
