"""Scores of positions: what a head adds up for a query and a key without looking at the image.

There are two kinds, and each is one dot product of a vector of the query with a vector of the key:

* scores that separate, score(q, k) = rows(q_1, k_1) + columns(q_2, k_2): the softmax over the grid is the product of
  one softmax a row and one a column. As a dot product: the key's vector says in which row and in which column it is.
* scores that do not: the encoding gives the vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

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


class Shape(NamedTuple):
    """Attention of heads, as ellipses.

    Attributes:
        centers: Means of the attended offsets, in pixels (row, column) from the query, [num_heads, 2].
        covariances: Their covariances, in square pixels, [num_heads, 2, 2].
    """

    centers: Tensor
    covariances: Tensor


class Positions(nn.Module, ABC):
    """Scores of positions of several heads."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor] | None:
        """Scores along the rows and the columns, each [num_heads, queries on it, keys on it]; None: not separable."""
        return None

    def vectors(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Vectors whose dot products are the scores, up to a constant of head and query, which the softmax ignores.

        Here a query's scores of every key, and for each key a one at its number; encodings have shorter ones.

        Returns:
            [num_heads, num_queries, dimension] and [num_keys, dimension].
        """
        scores = self.scores(grid)
        return scores, torch.eye(scores.shape[-1]).to(scores)

    @abstractmethod
    def scores(self, grid: Grid) -> Tensor:
        """Scores of all pairs, up to a constant of head and query, [num_heads, num_queries, num_keys]."""

    def shape(self, grid: Grid) -> Shape:
        """Ellipses of the heads: here by the moments of the central query's attention."""
        scores = self.scores(grid)[:, grid.middle]
        return moments(scores.softmax(-1), grid.offsets(scores)[grid.middle])


class SeparablePositions(Positions):
    """Scores that are the sum of a row's and a column's."""

    @abstractmethod
    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Scores along the rows and along the columns, each [num_heads, queries on it, keys on it]."""

    def scores(self, grid: Grid) -> Tensor:
        """The sums, for all pairs."""
        rows, columns = self.along_axes(grid)
        return (rows[:, :, None, :, None] + columns[:, None, :, None, :]).flatten(3).flatten(1, 2)

    def vectors(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """A query's scores of every row and every column, and for each key a one at its row and at its column."""
        rows, columns = self.along_axes(grid)
        return spread_over_grid(rows, columns), places(grid, like=rows)


def spread_over_grid(rows: Tensor, columns: Tensor) -> Tensor:
    """Tables of an axis each, [num_heads, queries on it, keys on it], as one: [num_heads, queries, keys]."""
    height, width = rows.shape[1], columns.shape[1]
    both = rows[:, :, None].expand(-1, -1, width, -1), columns[:, None].expand(-1, height, -1, -1)
    return torch.cat(both, dim=-1).flatten(1, 2)


def places(grid: Grid, *, like: Tensor) -> Tensor:
    """For each key a one at its row and a one at its column, [num_keys, key_rows + key_columns]."""
    row = torch.eye(grid.key_rows, dtype=like.dtype, device=like.device)
    column = torch.eye(grid.key_columns, dtype=like.dtype, device=like.device)
    return spread_over_grid(row.unsqueeze(0), column.unsqueeze(0))[0]


def moments(probabilities: Tensor, offsets: Tensor) -> Shape:
    """Mean and covariance of the offsets [num_keys, 2] under probabilities [num_heads, num_keys]."""
    centers = probabilities @ offsets
    away = offsets - centers.unsqueeze(1)
    return Shape(centers, torch.einsum("hk,hki,hkj->hij", probabilities, away, away))
