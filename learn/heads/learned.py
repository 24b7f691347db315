"""Scores that are learned for each offset, and heads that look at the image, too.

A table holds a free number for each row offset and each column offset of a head (the article's Figure 4). With
content, the terms (a), (b) and (c) of the draft's eq. 7 are added, as vectors of queries and of keys:

    score = (W_q x_q) . (W_k x_k)                               (a) content of the query with content of the key
          + (W_q x_q) . (rows[delta_1] + columns[delta_2])      (b) content of the query with the relative position
          + u . (W_k x_k)                                       (c) content of the key

each divided by sqrt(D_k). The offsets' vectors are learned, and the same for all heads (Bello et al.). With the key's
vector (W_k x_k, a one at its row, a one at its column) the sum is one dot product, so the whole attention is one call
of ``F.scaled_dot_product_attention`` without a bias for every pair. Position scores (d) that separate are added to the
numbers that meet these ones.

So the weights of a filter depend on the input: (a) and (c) let a head choose among pixels by what they show, (b) lets
the pixel under the query choose where the head looks. Only (d) alone is a convolution
(``proofs/claims/theorem/position_alone.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...convert.heads.content import AxisScores
from .positions import Grid, SeparablePositions


class Learned(SeparablePositions):
    """score(delta) = rows[delta_1] + columns[delta_2].

    Bello et al. and Ramachandran et al. learn vectors of the offsets, and one vector a head to compare them with.
    Without content a table holds all that these products can be. The first scores have a standard deviation of
    ``sharpness``.

    Attributes:
        table: The scores, [num_heads, 2 reach - 1] for each axis, of which ``reach`` is the most keys along one.
    """

    def __init__(self, num_heads: int, *, reach: int, sharpness: float = 1.0) -> None:
        super().__init__(num_heads)
        self.table = AxisScores(*(torch.randn(num_heads, 2 * reach - 1) * sharpness for _ in range(2)))

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The tables' entries at the offsets.

        Raises:
            GeometryError: The grid is larger than the tables.
        """
        return _along(self.table, grid, self.table.tables[0].dtype)


class Content(nn.Module):
    """Parameters of the terms (a), (b) and (c), for at most ``reach`` keys along an axis.

    Attributes:
        query_weight: W_q, [num_heads, key_dim, in_channels].
        key_weight: W_k, [num_heads, key_dim, in_channels].
        key_bias: u, [num_heads, key_dim].
        offsets: Vectors of the row offsets and of the column offsets, [key_dim, 2 reach - 1] each.
    """

    def __init__(self, num_heads: int, in_channels: int, *, key_dim: int, reach: int) -> None:
        super().__init__()
        shape = (num_heads, key_dim, in_channels)
        self.query_weight = nn.Parameter(torch.randn(shape) * in_channels**-0.5)
        self.key_weight = nn.Parameter(torch.randn(shape) * in_channels**-0.5)
        self.key_bias = nn.Parameter(torch.zeros(num_heads, key_dim))
        self.offsets = AxisScores(*(torch.randn(key_dim, 2 * reach - 1) for _ in range(2)))

    def vectors(self, queries: Tensor, keys: Tensor, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors whose dot products are terms (a) and (c), and the scores of term (b).

        Args:
            queries: The image's pixels, [batch, num_queries, in_channels].
            keys: The keys' pixels, [batch, num_keys, in_channels].
            grid: Where they are.

        Returns:
            [batch, num_heads, num_queries, D_k], the same of the keys, and each query's scores of every row and every
            column, [batch, num_heads, num_queries, key_rows + key_columns].
        """
        asked = torch.einsum("bqc,hdc->bhqd", queries, self.query_weight) * self.key_bias.shape[-1] ** -0.5
        shown = torch.einsum("bkc,hdc->bhkd", keys, self.key_weight)
        bias = self.key_bias.unsqueeze(1) * self.key_bias.shape[-1] ** -0.5
        rows, columns = _along(self.offsets, grid, asked.dtype)
        on_grid = asked.unflatten(2, (grid.rows, grid.columns))
        both = torch.einsum("bhpqd,dpk->bhpqk", on_grid, rows), torch.einsum("bhpqd,dqk->bhpqk", on_grid, columns)
        return asked + bias, shown, torch.cat(both, dim=-1).flatten(2, 3)


def _along(scores: AxisScores, grid: Grid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Entries of tables at a grid's offsets, along the rows and along the columns: [entries, queries, keys] each."""
    rows, columns = (
        scores.along(axis, torch.arange(queries, device=scores.tables[axis].device) + grid.padding, keys).to(dtype)
        for axis, (queries, keys) in enumerate(((grid.rows, grid.key_rows), (grid.columns, grid.key_columns)))
    )
    return rows, columns
