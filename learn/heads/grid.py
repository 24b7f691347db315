"""The pixels that queries and keys sit on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...convert.heads.encoding import grid_points, relative_positions


@dataclass(frozen=True)
class Grid:
    """An image whose pixels are the queries, with or without a border of zeros among the keys.

    Attributes:
        rows: Rows of the image.
        columns: Columns of the image.
        padding: Pixels of zeros on every side that are keys, too. With at least the largest |Delta| of a head, every
            head's target is a key, as Theorem 1 wants it; with 0 the keys are the pixels of the image.
    """

    rows: int
    columns: int
    padding: int = 0

    @property
    def key_rows(self) -> int:
        """Rows of the keys."""
        return self.rows + 2 * self.padding

    @property
    def key_columns(self) -> int:
        """Columns of the keys."""
        return self.columns + 2 * self.padding

    @property
    def middle(self) -> int:
        """Number of the query in the middle of the image."""
        return self.rows // 2 * self.columns + self.columns // 2

    def queries(self, like: Tensor) -> Tensor:
        """Positions of the queries, counted from the grid's first key, [rows * columns, 2]."""
        return grid_points(*(self._along(length, like) + self.padding for length in (self.rows, self.columns)))

    def keys(self, like: Tensor) -> Tensor:
        """Positions of the keys, [key_rows * key_columns, 2]."""
        return grid_points(*(self._along(length, like) for length in (self.key_rows, self.key_columns)))

    def offsets(self, like: Tensor) -> Tensor:
        """delta = k - q of every pair, [rows * columns, key_rows * key_columns, 2]."""
        return relative_positions(self.queries(like), self.keys(like))

    def offsets_along(self, axis: int, like: Tensor) -> Tensor:
        """delta along one axis, of the rows (0) or the columns (1): [queries on it, keys on it]."""
        queries, keys = ((self.rows, self.key_rows), (self.columns, self.key_columns))[axis]
        return self._along(keys, like) - (self._along(queries, like) + self.padding).unsqueeze(1)

    @staticmethod
    def _along(length: int, like: Tensor) -> Tensor:
        return torch.arange(length, dtype=like.dtype, device=like.device)
