"""Scores beside the quadratic positions: those that read the image, and learned tables.

The terms of the relative attention that read the image are (a), (b) and (c) of the draft's eq. (7).

    score = (W_qry x_q) . (W_key x_k)      (a) content of the query with content of the key
          + (W_qry x_q) . (W^_key r)       (b) content of the query with the relative position
          + u . (W_key x_k)                (c) content of the key
          + v . r                          (d) the relative position alone: ``encoding.py``

A convolution does not look at the image to decide where to look, so a converted layer has no content terms
at all. ``SelfAttention.add_content`` adds them so that the function of the layer stays what it was, and training can
change it: in one softmax, as eq. (7) has it, with W_qry = 0 and u = 0 at first. A sharp position drowns content: at
alpha = 128 content scores have no gradient. ``proofs/claims/theorem/decomposition.py`` derives the terms,
``proofs/claims/theorem/position_alone.py`` which parameters must be zero for (d) alone.

Learned tables take the place of (d), one for the rows, one for the columns:

    score_h(delta) = rows[h, delta_1] + columns[h, delta_2]

This is the learned relative encoding of the article (its Figure 4) without content: every head has a free number
for each row offset and for each column offset. A sequence has columns only, a volume has planes, rows and columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..arguments import Size
from ..errors import GeometryError

AXES = ("planes", "rows", "columns")  # the last of them are a layer's; parameters have these names


class ContentTerms(nn.Module):
    """Parameters of the terms (a), (b) and (c), for all heads.

    Args:
        num_heads: Heads of the layer.
        in_channels: Channels of the layer's input.
        key_dim: Dimension D_k in which queries and keys are compared.
        encoding_dim: Dimension D_p of the relative positional encoding.
        device: Where the parameters live.
        dtype: Their precision.

    Attributes:
        query_weight: W_qry, [num_heads, key_dim, in_channels]; zero at first.
        key_weight: W_key, [num_heads, key_dim, in_channels].
        position_weight: W^_key, [num_heads, key_dim, encoding_dim].
        key_bias: u, [num_heads, key_dim]; zero at first.
    """

    def __init__(
        self,
        num_heads: int,
        in_channels: int,
        *,
        key_dim: int,
        encoding_dim: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()

        def parameter(columns: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(num_heads, key_dim, columns, device=device, dtype=dtype))

        self.query_weight = parameter(in_channels)
        self.key_weight = parameter(in_channels)
        self.position_weight = parameter(encoding_dim)
        self.key_bias = nn.Parameter(torch.zeros(num_heads, key_dim, device=device, dtype=dtype))
        nn.init.normal_(self.key_weight, std=in_channels**-0.5)
        nn.init.normal_(self.position_weight, std=encoding_dim**-0.5)

    @property
    def score_flops(self) -> int:
        """FLOPs of the terms of one head, query and key, and of their part in a softmax."""
        return 2 * (self.key_weight.shape[1] + self.position_weight.shape[2]) + 4

    def is_off(self) -> bool:
        """Whether attention ignores the image: W_qry = 0 and u = 0."""
        return not (self.query_weight.any() or self.key_bias.any())

    def scores(self, queries: Tensor, keys: Tensor, encoding: Tensor) -> Tensor:
        """The sum of the three terms.

        Args:
            queries: Channels of the padded input under each query, [batch, num_queries, in_channels].
            keys: Channels of every pixel of the padded input, [batch, num_keys, in_channels].
            encoding: r_delta, [num_queries, num_keys, encoding_dim].

        Returns:
            [batch, num_queries, num_heads, num_keys], in the dtype of ``encoding``.
        """
        dtype = encoding.dtype
        projected_queries = torch.einsum("bqc,hdc->bqhd", queries.to(dtype), self.query_weight.to(dtype))
        projected_keys = torch.einsum("bkc,hdc->bhdk", keys.to(dtype), self.key_weight.to(dtype))
        with_content = torch.einsum("bqhd,bhdk->bqhk", projected_queries + self.key_bias.to(dtype), projected_keys)
        vectors = torch.einsum("bqhd,hdp->bqhp", projected_queries, self.position_weight.to(dtype))
        return with_content + torch.einsum("bqhp,qkp->bqhk", vectors, encoding)


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
