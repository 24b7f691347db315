"""Softmax along one axis: tables of probabilities, and their products with images.

Far keys weigh next to nothing: they are left out (``without_far_keys``), which makes the table a band. The rows of the
table are then taken in blocks, and each block is multiplied with the few pixels that it reads.
``proofs/claims/certificate/left_out.py`` proves what that costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..bounds.rounding import NEGLIGIBLE, left_out, unit_roundoff
from ..heads.values import AttentionLayer
from ..size import Size
from ..transforms import is_transformed
from .processor import JOINING

_CALL = 500_000  # what one more product costs, in multiply-adds that could have been done meanwhile
_NARROW = 12  # a product with few columns is as slow as one with this many more
_SHORT = 16  # sums of fewer terms than this take as long
_BLOCKS = (16, 24, 32, 48, 64)  # queries in a block


@dataclass(frozen=True)
class Block:
    """Queries start to stop of an axis, and the only keys that they read."""

    start: int
    stop: int
    first_key: int
    last_key: int

    @property
    def size(self) -> int:
        """Entries of the table inside the block."""
        return (self.stop - self.start) * (self.last_key - self.first_key)


@dataclass(frozen=True)
class AxisTable:
    """Attention probabilities along one axis.

    Attributes:
        probabilities: [num_queries, num_keys]; each row sums to 1.
        blocks: All queries, in order; one block that reads every key if the table is not a narrow band.
    """

    probabilities: Tensor
    blocks: tuple[Block, ...]

    @classmethod
    def dense(cls, probabilities: Tensor) -> AxisTable:
        """The table in one block, whatever its values are."""
        queries, keys = probabilities.shape
        return cls(probabilities, (Block(0, queries, 0, keys),))

    @classmethod
    def of(cls, probabilities: Tensor, vectors: int, *, kept: bool = True) -> AxisTable:
        """The table in the cheapest blocks; in one if it is small, or cannot be read.

        Args:
            probabilities: [num_queries, num_keys].
            vectors: Lines of pixels that the table is applied to.
            kept: Whether the table is kept for later calls. A table of one call is read on the CPU only: elsewhere
                each call would wait for the device.
        """
        unread = is_transformed() or probabilities.is_meta or not (kept or probabilities.is_cpu)
        if unread or len(probabilities) <= min(_BLOCKS):  # asked in this order: a traced length is a symbol
            return cls.dense(probabilities)
        return cls.banded(probabilities, vectors)

    @classmethod
    def banded(cls, probabilities: Tensor, vectors: int) -> AxisTable:
        """The table in the blocks that cost least when it is applied to ``vectors`` vectors; reads its values."""
        queries, keys = probabilities.shape
        used = probabilities != 0
        first = used.int().argmax(1).tolist()
        last = (keys - used.flip(1).int().argmax(1)).tolist()
        candidates = [cls.dense(probabilities).blocks]
        for length in (length for length in _BLOCKS if length < queries):
            starts = range(0, queries, length)
            ends = (min(start + length, queries) for start in starts)
            candidates.append(
                tuple(Block(s, e, min(first[s:e]), max(last[s:e])) for s, e in zip(starts, ends, strict=True))
            )
        return cls(probabilities, min(candidates, key=lambda blocks: _cost(blocks, vectors)))

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.probabilities.nbytes

    @property
    def entries(self) -> int:
        """Entries that are multiplied."""
        return sum(block.size for block in self.blocks)

    def cost(self, vectors: int) -> int:
        """Cost of applying the table to ``vectors`` lines of pixels, in multiply-adds of a large matrix product."""
        return _cost(self.blocks, vectors)

    def rows_of(self, x: Tensor) -> Tensor:
        """Applies the table to the rows of images: [..., num_keys, columns] -> [..., num_queries, columns]."""
        if len(self.blocks) == 1:
            return self.probabilities @ x
        parts = [
            self.probabilities[block.start : block.stop, block.first_key : block.last_key]
            @ x[..., block.first_key : block.last_key, :]
            for block in self.blocks
        ]
        return torch.cat(parts, dim=-2)

    def columns_of(self, x: Tensor) -> Tensor:
        """Applies the table to the columns of images: [..., num_keys] -> [..., num_queries]."""
        if len(self.blocks) == 1:
            return x @ self.probabilities.T
        flat = x.reshape(-1, x.shape[-1])
        parts = [
            flat[:, block.first_key : block.last_key]
            @ self.probabilities[block.start : block.stop, block.first_key : block.last_key].T
            for block in self.blocks
        ]
        return torch.cat(parts, dim=-1).view(*x.shape[:-1], -1)


def axis_probabilities(layer: AttentionLayer, size: Size, axis: int) -> Tensor:
    """Softmax of every head along one axis, computed in double precision: [num_heads, queries, keys]."""
    device = layer.alpha.device
    num_keys = layer.spec.padded_size(size)[axis]
    num_queries = layer.spec.output_size(size)[axis]
    steps = torch.arange(num_queries, dtype=torch.float64, device=device)
    queries = layer.spec.middle[axis] + layer.spec.query_stride[axis] * steps
    if layer.axis_scores is not None:
        scores = layer.axis_scores.along(axis, queries, num_keys)
    else:
        targets = queries + layer.centers.double()[:, axis, None]
        keys = torch.arange(num_keys, dtype=torch.float64, device=device)
        scores = -layer.alpha.double()[:, None, None] * (keys - targets.unsqueeze(-1)).square()
    return scores.softmax(dim=-1).to(layer.regime.dtype)


def without_negligible(probabilities: Tensor) -> Tensor:
    """Probabilities with 0 in place of those below ``NEGLIGIBLE`` units of rounding, which change no sum.

    It makes bands narrower, and spares the processor subnormal numbers, which it multiplies many times slower. Learned
    tables have them anywhere, also between two peaks, where ``without_far_keys`` would leave them.
    """
    return probabilities.masked_fill(probabilities < NEGLIGIBLE * unit_roundoff(probabilities.dtype), 0)


def without_far_keys(probabilities: Tensor, dtype: torch.dtype) -> Tensor:
    """The table with zeros for the first and the last keys of each query that weigh no more than ``left_out``.

    Not only are zeros not multiplied: numbers close to the smallest, which they replace, can take a processor a hundred
    times as long.

    Args:
        probabilities: [queries, keys], non-negative.
        dtype: Precision that they are used in.
    """
    if is_transformed():
        return probabilities
    most = 0.49 * left_out(dtype)  # on either side; less than half, because sums are rounded
    before, after = probabilities.double().cumsum(1), probabilities.double().flip(1).cumsum(1).flip(1)
    return probabilities.where((before > most) & (after > most), 0.0)


def _cost(blocks: tuple[Block, ...], vectors: int) -> int:
    """Multiply-adds, and what small products lose."""
    widths = ((max(block.last_key - block.first_key, _SHORT), block.stop - block.start + _NARROW) for block in blocks)
    joining = JOINING * blocks[-1].stop * vectors if len(blocks) > 1 else 0
    return sum(keys * queries * vectors + _CALL for keys, queries in widths) + joining
