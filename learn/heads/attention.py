"""The layer: any number of heads, each with scores of positions, and with or without content.

    output[q] = bias + sum_h W_h sum_k softmax_k(score_h(q, k)) x_k

W_h is the product of the paper's W_val and W_out. Three ways to compute it, by what the scores allow:

* positions that separate: a softmax along the rows and one along the columns, applied one after the other, where that
  takes fewer multiplications than the next;
* positions alone: one softmax over all keys, the same for every image of a batch;
* content: ``F.scaled_dot_product_attention`` on the vectors of content and positions, one after the other.

Probabilities of positions are computed in float32 at least, also under autocast: in bfloat16 a head looks at the wrong
pixel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...convert.context import without_autocast
from ...convert.errors import ConversionError, GeometryError
from .encodings import Content
from .positions import Grid, Positions, SeparablePositions, places


class HeadAttention(nn.Module):
    """Multi-head self-attention over the pixels of an image.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        positions: Scores of positions, which say how many heads there are.
        content: Scores of content, or None.
        padding: Pixels of zeros around the image that are keys, too.

    Attributes:
        weight: W_h, [out_channels, num_heads, in_channels].
        bias: [out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        positions: Positions,
        *,
        content: Content | None = None,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.padding = in_channels, out_channels, padding
        self.positions = positions
        self.content = content
        self.weight = nn.Parameter(torch.empty(out_channels, positions.num_heads, in_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.weight.flatten(1))

    @classmethod
    def of(cls, positions: Positions, weight: Tensor, bias: Tensor | None = None) -> HeadAttention:
        """The layer whose keys are the image's pixels, with copies of these projections; no bias means zeros."""
        layer = cls(weight.shape[2], weight.shape[0], positions).to(weight)
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.zero_() if bias is None else layer.bias.copy_(bias)
        return layer

    @property
    def num_heads(self) -> int:
        """Heads."""
        return self.positions.num_heads

    def grid(self, rows: int, columns: int) -> Grid:
        """Queries and keys for an image of this size."""
        return Grid(rows, columns, self.padding)

    def forward(self, x: Tensor) -> Tensor:
        """Computes the layer: [batch, rows, columns, in_channels] -> [batch, rows, columns, out_channels].

        Raises:
            GeometryError: The input has another shape, or is larger than learned tables reach.
        """
        if x.ndim != 4 or x.shape[-1] != self.in_channels:
            raise GeometryError(f"input must be [batch, rows, columns, {self.in_channels}]; got {list(x.shape)}")
        grid = self.grid(x.shape[1], x.shape[2])
        keys = F.pad(x, (0, 0, *[self.padding] * 4))
        read = self._by_position(keys, grid) if self.content is None else self._by_content(self.content, x, keys, grid)
        return torch.unflatten(F.linear(read, self.weight.flatten(1), self.bias), 1, (grid.rows, grid.columns))

    def probabilities(self, grid: Grid, x: Tensor | None = None) -> Tensor:
        """Attention probabilities of the heads for every query.

        Args:
            grid: Queries and keys.
            x: The image, [batch, rows, columns, in_channels]; only a layer with content needs it.

        Returns:
            [num_heads, num_queries, num_keys]; with content [batch, num_heads, num_queries, num_keys].

        Raises:
            ConversionError: The layer has content and there is no image.
        """
        with without_autocast(self.weight.device):
            if self.content is None:
                return self.positions.scores(grid).softmax(-1)
            if x is None:
                raise ConversionError("where heads with content look depends on the image: x is needed")
            queries, keys = self._vectors(self.content, x, F.pad(x, (0, 0, *[self.padding] * 4)), grid)
            return (queries @ keys.transpose(-1, -2)).softmax(-1)

    def _by_position(self, keys: Tensor, grid: Grid) -> Tensor:
        """The input averaged by each head: [batch, num_queries, num_heads * in_channels]."""
        with without_autocast(keys.device):
            tables = self.positions.along_axes(grid) if _separable_is_cheaper(grid) else None
            if tables is None:
                probabilities = self.positions.scores(grid).softmax(-1).transpose(0, 1).flatten(0, 1).to(keys.dtype)
            else:
                rows, columns = (table.softmax(-1).to(keys.dtype) for table in tables)
        if tables is None:
            return torch.unflatten(probabilities @ keys.flatten(1, 2), 1, (-1, self.num_heads)).flatten(2)
        along = columns.flatten(0, 1) @ keys  # [batch, key rows, num_heads * columns, in_channels]
        read = torch.einsum("hpr,brhqc->bpqhc", rows, along.unflatten(2, (self.num_heads, -1)))
        return read.flatten(3).flatten(1, 2)

    def _by_content(self, content: Content, x: Tensor, keys: Tensor, grid: Grid) -> Tensor:
        """As ``_by_position``."""
        with without_autocast(x.device):
            asked, shown = self._vectors(content, x, keys, grid)
        values = keys.flatten(1, 2).unsqueeze(1).expand(-1, self.num_heads, -1, -1).to(asked.dtype)
        width = max(asked.shape[-1], self.in_channels)  # kernels without a table of all pairs want equal dimensions
        asked, shown, values = (F.pad(each, (0, width - each.shape[-1])) for each in (asked, shown, values))
        read = F.scaled_dot_product_attention(asked, shown, values, scale=1.0)[..., : self.in_channels]
        return read.transpose(1, 2).flatten(2)

    def _vectors(self, content: Content, x: Tensor, keys: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Vectors of content and positions, one after the other: [batch, num_heads, num_queries, D] and of the keys."""
        dtype = self.weight.dtype
        asked, shown, by_offset = content.vectors(x.flatten(1, 2).to(dtype), keys.flatten(1, 2).to(dtype), grid)
        where, encoding = self.positions.vectors(grid)
        if isinstance(self.positions, SeparablePositions):  # its keys' vectors are those that ``by_offset`` wants
            where = where + by_offset
        else:
            where = torch.cat([where.expand(len(asked), -1, -1, -1), by_offset], -1)
            encoding = torch.cat([encoding, places(grid, like=encoding)], -1)
        encoding = encoding.expand(*shown.shape[:2], -1, -1)
        return torch.cat([asked, where], -1), torch.cat([shown, encoding], -1)


def _separable_is_cheaper(grid: Grid) -> bool:
    """Whether a pass along the columns and one along the rows multiply less than one pass over all keys."""
    queries = grid.rows * grid.columns
    two_passes = grid.key_rows * grid.columns * grid.key_columns + queries * grid.key_rows
    return 2 * two_passes < queries * grid.key_rows * grid.key_columns  # the first pass writes what the second reads
