"""The sum over heads that share nothing, where every head has tables of its own: forward and backward by hand.

    Y = sum_h W_h A_h,      A_h = Z_h C_h^T,      Z_h = R_h X

with R_h and C_h the attention of head h along the rows and along the columns (one table for each axis of the layer).
Autograd would keep Z_h and A_h of every head, which are 2 K^2 images for a kernel of K x K taps. Here X, W and the
tables are kept; the backward pass computes Z and A again, and

    dA_h = W_h^T dY       dC_h = dA_h^T Z_h       dR_h = dZ_h X^T
    dW_h = dY A_h^T       dZ_h = dA_h C_h         dX   = sum_h R_h^T dZ_h

Both passes take so many queries and images at a time that Z and A stay in the cache. Pixels that no query of a block
sees are left out of its products: their probabilities are exactly zero, and the derivatives of these zeros, which
multiply a derivative that is zero, are not computed. Derivatives of derivatives are autograd's,
of the formula as it stands.

Inside, images are [first axis, batch, other axes, channels], so that the first table multiplies all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...heads.values import AttentionLayer

_BLOCK_BYTES = 6 * 2**20  # of what all heads read, and of their tables


def head_sum(source: Tensor, weight: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """sum_h W_h A_h.

    Args:
        source: X, [batch, in_channels, *pixels].
        weight: W, [num_heads, groups, out_channels / groups, in_channels / groups].
        tables: For each axis, attention probabilities [num_heads, queries, pixels].

    Returns:
        [batch, out_channels, *queries].
    """
    moved = source.permute(2, 0, *range(3, source.ndim), 1).contiguous()
    summed: Tensor = _HeadSum.apply(moved, all_heads(weight), *tables)  # type: ignore[no-untyped-call]
    return summed.permute(1, -1, 0, *range(2, summed.ndim - 1))


class _HeadSum(torch.autograd.Function):
    """``head_sum`` with its derivatives; W is a matrix for each group, [groups, num_heads * in, out] channels."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, mixing: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(source, mixing, *tables)
        first, *others = (table.shape[1] for table in tables)
        output = source.new_empty(first, source.shape[1], *others, len(mixing) * mixing.shape[2])
        for block in _blocks(source, tables):
            part = output[block.queries, block.images]
            part.copy_(_mixed(block.read(source)[-1], mixing).reshape(part.shape))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        source, mixing, *tables = ctx.saved_tensors
        if torch.is_grad_enabled():
            whole = _Block.of(source, tables, slice(None), slice(None), slice(None))
            output = _mixed(whole.read(source)[-1], mixing).reshape(gradients[0].shape)
            return differentiable_backward(ctx, output, gradients[0])
        found = tuple(map(torch.zeros_like, ctx.saved_tensors))
        for block in _blocks(source, tables):
            block.add_gradients(gradients[0], ctx.saved_tensors, found)
        return found


def differentiable_backward(ctx: Any, output: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Derivatives with respect to what a function saved, as ones that autograd can differentiate again.

    Args:
        ctx: The function's context.
        output: Its output, computed from what it saved by operations that autograd follows.
        gradient: The derivative with respect to the output.
    """
    inputs = [saved for saved, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(output, inputs, gradient, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[: len(ctx.saved_tensors)])


@dataclass(frozen=True)
class _Block:
    """Some queries along the first axis, in some images, and the pixels that they see.

    Attributes:
        heads: Number of heads.
        queries: The queries.
        pixels: The pixels along the first axis.
        images: The images.
        tables: The table of each axis as a matrix for every product: [num_heads * queries, pixels] along the first
            axis, [num_heads * places before, queries, pixels] along the others.
    """

    heads: int
    queries: slice
    pixels: slice
    images: slice
    tables: tuple[Tensor, ...]

    @classmethod
    def of(cls, source: Tensor, tables: Sequence[Tensor], queries: slice, pixels: slice, images: slice) -> _Block:
        """Makes a block of its part of the tables."""
        first = tables[0][:, queries, pixels]
        made, before = [first.flatten(0, 1)], first.shape[1] * source[:1, images].shape[1]
        for table in tables[1:]:
            made.append(table.unsqueeze(1).expand(-1, before, -1, -1).flatten(0, 1))
            before *= table.shape[1]
        return cls(len(first), queries, pixels, images, tuple(made))

    def read(self, source: Tensor) -> list[Tensor]:
        """What all heads have read after each axis: Z, and A as [num_heads, places, in_channels]."""
        first, *others = self.tables
        found = [first @ source[self.pixels, self.images].flatten(1)]
        for table in others:
            found.append(torch.bmm(table, found[-1].view(len(table), table.shape[2], -1)))
        return [*found[:-1], found[-1].view(self.heads, -1, source.shape[-1])]

    def add_gradients(self, gradient: Tensor, inputs: Sequence[Tensor], found: Sequence[Tensor]) -> None:
        """Adds the block's part of the derivatives.

        Args:
            gradient: dY.
            inputs: X, W and the tables.
            found: The derivatives of each, so far.
        """
        source, mixing, *tables = inputs
        read = self.read(source)
        part = gradient[self.queries, self.images].reshape(-1, len(mixing), mixing.shape[2]).transpose(0, 1)
        found[1].add_(product(by_query(read[-1], len(mixing)).transpose(1, 2), part))
        passed = by_head(product(part, mixing.transpose(1, 2)), self.heads)
        for axis in range(len(tables) - 1, 0, -1):
            table = self.tables[axis]
            passed = passed.view(*table.shape[:2], -1)
            seen = read[axis - 1].view(len(table), table.shape[2], -1)
            products = torch.bmm(passed, seen.transpose(1, 2))
            found[2 + axis].add_(torch.unflatten(products, 0, (self.heads, -1)).sum(1))
            passed = torch.bmm(table.transpose(1, 2), passed)
        passed = passed.view(len(self.tables[0]), -1)
        pixels = source[self.pixels, self.images]
        along = found[2][:, self.queries, self.pixels]
        along.add_((passed @ pixels.flatten(1).T).view(along.shape))
        found[0][self.pixels, self.images].add_((self.tables[0].T @ passed).view(pixels.shape))


def _mixed(read: Tensor, mixing: Tensor) -> Tensor:
    """sum_h W_h A_h for every query, [places, groups, out_channels / groups]."""
    return product(by_query(read, len(mixing)), mixing).transpose(0, 1)


def head_weights(layer: AttentionLayer, dtype: torch.dtype) -> Tensor:
    """The value projections, [num_heads, groups, out_channels / groups, in_channels / groups]."""
    weight = layer.kernel.to(dtype).flatten(2).permute(2, 0, 1)
    return torch.unflatten(weight, 1, (layer.spec.groups, -1)).contiguous()


def all_heads(weight: Tensor) -> Tensor:
    """W as one matrix for each group, [groups, num_heads * in, out] channels."""
    return weight.permute(1, 0, 3, 2).flatten(1, 2)


def by_query(read: Tensor, groups: int) -> Tensor:
    """A with one head after the other at each place: [groups, places, num_heads * in_channels / groups]."""
    return torch.unflatten(read, 2, (groups, -1)).permute(2, 1, 0, 3).flatten(2)


def by_head(read: Tensor, heads: int) -> Tensor:
    """The inverse of ``by_query``: [num_heads, places, groups, channels]."""
    return torch.unflatten(read, 2, (heads, -1)).permute(2, 1, 0, 3).contiguous()


def product(left: Tensor, right: Tensor) -> Tensor:
    """``torch.bmm``; of a single pair as one matrix product, which is faster."""
    return (left[0] @ right[0]).unsqueeze(0) if len(left) == 1 else torch.bmm(left, right)


def _blocks(source: Tensor, tables: Sequence[Tensor]) -> Iterator[_Block]:
    """Blocks whose intermediate results have about ``_BLOCK_BYTES``: some rows of one image, or some whole images."""
    first, batch = tables[0], source.shape[1]
    queries = first.shape[1]
    rows = max(1, _BLOCK_BYTES // _bytes_of_a_row(source, tables))
    images = min(max(1, rows // queries), batch)
    rows = math.ceil(queries / math.ceil(queries / rows))
    used = (first != 0).any(0)
    start = used.int().argmax(1).tolist()
    stop = (used.shape[1] - used.flip(1).int().argmax(1)).tolist()
    for query in range(0, queries, rows):
        part = slice(query, min(query + rows, queries))
        pixels = slice(min(start[part]), max(stop[part]))
        block = _Block.of(source, tables, part, pixels, slice(0, images))
        for image in range(0, batch - images + 1, images):
            yield replace(block, images=slice(image, image + images))
        if batch % images:
            yield _Block.of(source, tables, part, pixels, slice(batch - batch % images, batch))


def _bytes_of_a_row(source: Tensor, tables: Sequence[Tensor]) -> int:
    """Bytes that all heads read for one query of the first axis in one image, with the tables of the other axes."""
    lengths, held, before = list(source.shape[2:-1]), 0, 1
    for table in tables[1:]:
        held += before * math.prod(lengths) * source.shape[-1] + before * table.shape[1] * table.shape[2]
        before *= table.shape[1]
        lengths = lengths[1:]
    return len(tables[0]) * (held + before * source.shape[-1]) * source.element_size()
