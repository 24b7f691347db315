"""Attention along both axes of images in one product, where that is cheaper than a pass along each.

The softmax over a grid is the outer product of a softmax along the rows and one along the columns (claim
``separable-softmax``), so both passes together are

    X -> (R (x) C) X,     ((R (x) C) X)[q] = sum_k R[q_1, k_1] C[q_2, k_2] X[k]

With stencils (``stencil.py``) that is one convolution, channel by channel, with the outer product of their weights, and
a scale for every query. An image is then read and written once, and not once an axis, which is what takes the time. In
a small image the whole table of all queries and keys is one small matrix. A sum has at most ``JOINT_KEYS`` terms either
way, which the certificate counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..bounds.rounding import JOINT_KEYS
from .axes import AxisTable
from .convolution import Geometry, convolve, is_channels_last
from .processor import CONVOLVING, LANES, MOVING, REORDERING, SHUFFLING
from .stencil import Stencil

_RAGGED = 4  # how much longer it takes if some of a register's channels are missing


@dataclass(frozen=True)
class JointStencil:
    """The product of a stencil along the rows and one along the columns.

    Attributes:
        weights: [row taps, column taps].
        scale: [query rows, query columns].
        stride: Pixels between queries, along both axes.
        padding: Zeros that the convolution with ``weights`` adds at both ends of the axes.
        cost: As ``Passes.cost``.
    """

    weights: Tensor
    scale: Tensor
    stride: tuple[int, int]
    padding: tuple[int, int]
    cost: float

    @classmethod
    def of(cls, rows: Stencil, columns: Stencil, pixels: int, *, images: int, channels_last: bool) -> JointStencil:
        """The product of two stencils, for images of one channel each and so many pixels."""
        weights, scale = torch.outer(rows.weights, columns.weights), torch.outer(rows.scale, columns.scale)
        moved = scale.numel() * (weights.numel() + MOVING)
        if not channels_last:
            moved += SHUFFLING * (scale.numel() + pixels) // 2
        cost = moved * images * (_RAGGED if images % LANES else 1) + CONVOLVING
        return cls(weights, scale, (rows.stride, columns.stride), (rows.padding, columns.padding), cost)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights and the scale."""
        return self.weights.nbytes + self.scale.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """[batch, channels, rows, columns] -> [batch, channels, query rows, query columns], laid out as x is."""
        batch, channels, size = x.shape[0], x.shape[1], x.shape[2:]
        if channels % LANES and not is_channels_last(x):
            x = x.reshape(1, batch * channels, *size)  # all channels are attended alike
        kernel = self.weights.expand(x.shape[1], 1, -1, -1)
        attended = convolve(x, kernel, None, Geometry(self.stride, self.padding, (1, 1), x.shape[1]))
        return attended.mul_(self.scale).view(batch, channels, *attended.shape[2:])


@dataclass(frozen=True)
class JointTable:
    """The product of a table along the rows and one along the columns.

    Attributes:
        table: [query rows * query columns, rows * columns].
        queries: Query rows and query columns.
        cost: As ``Passes.cost``.
    """

    table: AxisTable
    queries: tuple[int, int]
    cost: float

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, *, images: int, channels_last: bool) -> JointTable:
        """The product of two tables [queries, pixels], for images of one channel each."""
        products = rows.unsqueeze(1).unsqueeze(-1) * columns.unsqueeze(1)  # torch.kron refuses strides of one column
        table = AxisTable.dense(products.flatten(2).flatten(0, 1))
        cost = table.cost(images) + channels_last * REORDERING * images * table.probabilities.shape[1]
        return cls(table, (rows.shape[0], columns.shape[0]), cost)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.table.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """[batch, channels, rows, columns] -> [batch, channels, query rows, query columns]."""
        return torch.unflatten(self.table.columns_of(x.flatten(2)), 2, self.queries)


def joint_forms(
    tables: Sequence[Tensor], stencils: Sequence[Stencil | None], *, images: int, channels_last: bool
) -> Iterator[JointStencil | JointTable]:
    """The forms of a layer's attention whose sums are short, and that torch computes fast.

    Args:
        tables: Probabilities [queries, pixels] along the rows, and along the columns.
        stencils: The same as stencils, where there are.
        images: Images, of one channel each.
        channels_last: Whether the channels of a pixel lie next to each other.
    """
    rows, columns = stencils
    pixels = math.prod(table.shape[1] for table in tables)
    if pixels <= JOINT_KEYS:
        yield JointTable.of(tables[0], tables[1], images=images, channels_last=channels_last)
    if rows is None or columns is None:
        return
    if not channels_last and (rows.is_slow(along_columns=False) or columns.is_slow(along_columns=True)):
        return
    if len(rows.weights) * len(columns.weights) <= JOINT_KEYS:
        yield JointStencil.of(rows, columns, pixels, images=images, channels_last=channels_last)
