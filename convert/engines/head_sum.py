"""The sum over heads that share nothing, where every head has tables of its own.

    Y = sum_h W_h A_h,      A_h = Z_h C_h^T,      Z_h = R_h X

with R_h and C_h the attention of head h along the rows and along the columns (one table for each axis of the layer).
Autograd would keep Z_h and A_h of every head, which are 2 K^2 images for a kernel of K x K taps. So queries along the
first axis are taken some at a time, and what they read is computed again in the backward pass. Heads that look nearby
read few of the pixels: on a CPU only the blocks of a table that are not zero are multiplied (``blocks_of``).

Inside, images are [*axes, batch, channels]: a product along an axis is then one of long vectors, of all places at once
along the first axis, and Z and A are multiplied as they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..arguments import Size
from ..context import is_transformed
from ..heads.values import LayerValues
from ..spec import ConvSpec
from .axes import BLOCK

Blocks = tuple[tuple[int, int, int, int], ...]
"""As ``blocks_of`` gives them."""
_BLOCK_BYTES = 12 * 2**20  # of what all heads read for the queries that are taken at a time


def blocks_of(probabilities: Tensor, *, most: int | None = None) -> tuple[tuple[int, int, int, int], ...]:
    """First and last query, and first and last pixel that they read, of blocks of queries, in order.

    Args:
        probabilities: [..., queries, pixels]; a pixel that no leading index reads is left out.
        most: Queries of a block, at most. Without a limit, a table that is short or no narrow band is one block.
    """
    queries, pixels = probabilities.shape[-2:]
    if is_transformed():  # sizes may be symbols, which a range would make numbers of
        return ((0, queries, 0, pixels),)
    most = max(1, queries if most is None else most)
    whole = tuple((start, min(start + most, queries), 0, pixels) for start in range(0, queries, most))
    if not probabilities.is_cpu or queries <= 2 * BLOCK:
        return whole
    used = (probabilities != 0).flatten(0, -3).any(0) if probabilities.ndim > 2 else probabilities != 0
    first, last = used.int().argmax(1).tolist(), (pixels - used.flip(1).int().argmax(1)).tolist()
    rows = min(BLOCK, most)
    ends = [(start, min(start + rows, queries)) for start in range(0, queries, rows)]
    blocks = tuple((start, end, min(first[start:end]), max(last[start:end])) for start, end in ends)
    entries = sum((end - start) * (stop - begin) for start, end, begin, stop in blocks)
    return blocks if 2 * entries <= queries * pixels else whole


def head_sum(source: Tensor, weight: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """sum_h W_h A_h.

    Args:
        source: X, [batch, in_channels, *pixels].
        weight: W, [num_heads, groups, out_channels / groups, in_channels / groups].
        tables: For each axis, attention probabilities [num_heads, queries, pixels]. Zeros far from where the heads look
            are taken to be constants (``without_negligible``): they are not multiplied, and get no gradient.

    Returns:
        [batch, out_channels, *queries].
    """
    moved, mixing = source.movedim((0, 1), (-2, -1)).contiguous(), weight.permute(1, 0, 3, 2).flatten(1, 2)
    first, *rest = tables
    others = [(table, blocks_of(table)) for table in rest]
    if is_transformed():
        summed = _block(moved, mixing, first, *others)
    else:
        parts = [
            checkpoint(
                _block,
                moved[begin:stop],
                mixing,
                first[:, start:end, begin:stop],
                *others,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for start, end, begin, stop in blocks_of(first, most=_queries_at_a_time(moved, tables))
        ]
        summed = parts[0] if len(parts) == 1 else torch.cat(parts)
    return summed.movedim((-2, -1), (0, 1))


def _block(source: Tensor, mixing: Tensor, first: Tensor, *others: tuple[Tensor, Blocks]) -> Tensor:
    """The sum for some queries along the first axis: [queries, *other queries, batch, out_channels].

    Args:
        source: [*pixels, batch, in_channels].
        mixing: W as one matrix for each group, [groups, num_heads * in, out] channels.
        first: [num_heads, queries, pixels].
        others: The tables of the other axes, and the blocks that they are multiplied in.
    """
    heads, (batch, channels) = first.shape[0], source.shape[-2:]
    queries = [first.shape[1], *(table.shape[1] for table, _ in others)]
    read = first.flatten(0, 1) @ source.flatten(1)
    for table, blocks in others:
        places = read.shape[0] // heads
        lines = read.view(heads * places, table.shape[2], read.shape[1] // table.shape[2])
        parts = [_along(table[:, start:end, begin:stop], lines[:, begin:stop]) for start, end, begin, stop in blocks]
        read = (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).flatten(0, 1)
    return _mixed(read.view(heads, math.prod(queries) * batch, channels), mixing).view(
        *queries, batch, mixing.shape[0] * mixing.shape[2]
    )


def _along(table: Tensor, lines: Tensor) -> Tensor:
    """The product of each head's table [num_heads, queries, pixels] with its lines [num_heads * places, pixels, n]."""
    places = lines.shape[0] // table.shape[0]  # not their lengths, which would make a symbol a number
    return torch.bmm(table.unsqueeze(1).expand(-1, places, -1, -1).flatten(0, 1), lines)


def _mixed(read: Tensor, mixing: Tensor) -> Tensor:
    """sum_h W_h A_h, [places, out_channels], of A [num_heads, places, in_channels] and W as in ``_block``."""
    if len(mixing) == 1:
        weights = mixing[0].unflatten(0, (len(read), -1))
        return torch.bmm(read, weights).sum(0)
    by_place = torch.unflatten(read, 2, (len(mixing), -1)).permute(2, 1, 0, 3).flatten(2)
    return torch.bmm(by_place, mixing).transpose(0, 1).flatten(1)


def head_weights(layer: LayerValues, dtype: torch.dtype) -> Tensor:
    """The value projections, [num_heads, groups, out_channels / groups, in_channels / groups]."""
    weight = layer.kernel.to(dtype).flatten(2).permute(2, 0, 1)
    return torch.unflatten(weight, 1, (layer.spec.groups, -1)).contiguous()


def project(weight: Tensor, x: Tensor) -> Tensor:
    """W x at every pixel: [batch, in_channels, *size] -> [batch, out_channels, *size].

    Args:
        weight: [groups, out_channels / groups, in_channels / groups].
        x: [batch, in_channels, *size].
    """
    groups, _, channels = weight.shape
    pixels = torch.unflatten(x.flatten(2), 1, (groups, channels))
    projected = weight * pixels if channels == 1 else weight @ pixels
    return torch.unflatten(projected.flatten(1, 2), 2, x.shape[2:])


def bytes_held(spec: ConvSpec, size: Size, batch: int, element: int) -> int:
    """Bytes that the sum holds: the images as they are moved, and what all heads read for some queries."""
    grid, output = spec.padded_size(size), spec.output_size(size)
    row = spec.num_heads * _read_by_a_row(output[1:], grid[1:]) * batch * spec.in_channels * element
    images = batch * (spec.in_channels * math.prod(grid) + 2 * spec.out_channels * math.prod(output))
    return images * element + max(min(_BLOCK_BYTES, row * output[0]), row)


def _read_by_a_row(queries: Sequence[int], pixels: Sequence[int]) -> int:
    """Numbers that a head reads for one query along the first axis, of an image of one channel, over all passes."""
    return sum(math.prod(queries[:axis]) * math.prod(pixels[axis:]) for axis in range(len(queries) + 1))


def _queries_at_a_time(source: Tensor, tables: Sequence[Tensor]) -> int:
    queries, pixels = [t.shape[1] for t in tables[1:]], source.shape[1:-2]
    row = len(tables[0]) * _read_by_a_row(queries, pixels) * source.shape[-2:].numel() * source.element_size()
    blocks = math.ceil(tables[0].shape[1] * row / _BLOCK_BYTES)
    return math.ceil(tables[0].shape[1] / max(blocks, 1))
