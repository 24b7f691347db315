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

Inside, images are [*axes, batch, channels]: a product along an axis is then one of long vectors, of all places at once
along the first axis, and Z and A are multiplied as they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...heads.values import AttentionLayer
from .mixing import all_heads, mixed, mixing_gradients

_BLOCK_BYTES = 12 * 2**20  # of what all heads read, and of their tables
_QUERIES = 8  # along the first axis: fewer are slower, more see more pixels in whose products most factors are zero


def head_sum(source: Tensor, weight: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """sum_h W_h A_h.

    Args:
        source: X, [batch, in_channels, *pixels].
        weight: W, [num_heads, groups, out_channels / groups, in_channels / groups].
        tables: For each axis, attention probabilities [num_heads, queries, pixels].

    Returns:
        [batch, out_channels, *queries].
    """
    moved = _moved(source)
    summed: Tensor = _HeadSum.apply(moved, all_heads(weight), *tables)  # type: ignore[no-untyped-call]
    return summed.movedim((-2, -1), (0, 1))


class _HeadSum(torch.autograd.Function):
    """``head_sum`` with its derivatives; W is a matrix for each group, [groups, num_heads * in, out] channels."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, mixing: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(source, mixing, *tables)
        queries = (table.shape[1] for table in tables)
        output = source.new_empty(*queries, source.shape[-2], len(mixing) * mixing.shape[2])
        for block in _blocks(source, tables):
            part = output[block.queries, ..., block.images, :]
            part.copy_(mixed(block.read(source)[-1], mixing).view(part.shape))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once, as checkpointing wants it
        source, mixing, *tables = saved
        if torch.is_grad_enabled():
            whole = _Block.of(tables, slice(None), slice(None), slice(None))
            output = mixed(whole.read(source)[-1], mixing).view(gradients[0].shape)
            return differentiable_backward(saved, ctx.needs_input_grad, output, gradients[0])
        found = tuple(map(torch.zeros_like, saved))
        for block in _blocks(source, tables):
            block.add_gradients(gradients[0], saved, found)
        return found


def differentiable_backward(
    saved: Sequence[Tensor], needed: Sequence[bool], output: Tensor, gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """Derivatives with respect to what a function saved, as ones that autograd can differentiate again.

    Args:
        saved: What it saved.
        needed: For each of these, whether its derivative is asked for; what follows is left out.
        output: Its output, computed from what it saved by operations that autograd follows.
        gradient: The derivative with respect to the output.
    """
    asked = needed[: len(saved)]
    inputs = [tensor for tensor, wanted in zip(saved, asked, strict=True) if wanted]
    found = iter(torch.autograd.grad(output, inputs, gradient, create_graph=True))
    return tuple(next(found) if wanted else None for wanted in asked)


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
    def of(cls, tables: Sequence[Tensor], queries: slice, pixels: slice, images: slice) -> _Block:
        """Makes a block of its part of the tables."""
        first = tables[0][:, queries, pixels]
        made, before = [first.flatten(0, 1)], first.shape[1]
        for table in tables[1:]:
            made.append(table.unsqueeze(1).expand(-1, before, -1, -1).flatten(0, 1))
            before *= table.shape[1]
        return cls(len(first), queries, pixels, images, tuple(made))

    def seen(self, source: Tensor) -> Tensor:
        """The pixels of the images, [pixels along the first axis, pixels along the others * images * channels]."""
        return source[self.pixels, ..., self.images, :].flatten(1)

    def read(self, source: Tensor) -> list[Tensor]:
        """What all heads have read after each axis: Z, and A as [num_heads, places, in_channels]."""
        first, *others = self.tables
        found = [first @ self.seen(source)]
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
        part = gradient[self.queries, ..., self.images, :].reshape(-1, gradient.shape[-1])
        passed, by_weight = mixing_gradients(read[-1], mixing, part)
        found[1].add_(by_weight)
        for axis in range(len(tables) - 1, 0, -1):
            table = self.tables[axis]
            passed = passed.view(*table.shape[:2], -1)
            before = read[axis - 1].view(len(table), table.shape[2], -1)
            products = torch.bmm(passed, before.transpose(1, 2))
            found[2 + axis].add_(torch.unflatten(products, 0, (self.heads, -1)).sum(1))
            passed = torch.bmm(table.transpose(1, 2), passed)
        passed = passed.view(len(self.tables[0]), -1)
        along = found[2][:, self.queries, self.pixels]
        along.add_((passed @ self.seen(source).T).view(along.shape))
        pixels = found[0][self.pixels, ..., self.images, :]
        pixels.add_((self.tables[0].T @ passed).view(pixels.shape))


def head_weights(layer: AttentionLayer, dtype: torch.dtype) -> Tensor:
    """The value projections, [num_heads, groups, out_channels / groups, in_channels / groups]."""
    weight = layer.kernel.to(dtype).flatten(2).permute(2, 0, 1)
    return torch.unflatten(weight, 1, (layer.spec.groups, -1)).contiguous()


def _moved(images: Tensor) -> Tensor:
    """[batch, channels, *pixels] as [*pixels, batch, channels], of images in rows as a transposed matrix."""
    if not images.is_contiguous():
        return images.movedim((0, 1), (-2, -1)).contiguous()
    batch, channels, *pixels = images.shape
    return images.view(batch * channels, math.prod(pixels)).T.contiguous().view(*pixels, batch, channels)


def _blocks(source: Tensor, tables: Sequence[Tensor]) -> Iterator[_Block]:
    """Blocks whose intermediate results have about ``_BLOCK_BYTES``: of fewer images rather than ``_QUERIES``."""
    first, batch = tables[0], source.shape[-2]
    queries = first.shape[1]
    read, held = _bytes_of_a_row(source, tables)
    images = min(max(1, _BLOCK_BYTES // (read * min(_QUERIES, queries))), batch)
    images = math.ceil(batch / math.ceil(batch / images)) if batch else 1
    rows = min(max(1, _BLOCK_BYTES // (read * images + held)), queries)
    rows = math.ceil(queries / math.ceil(queries / rows))
    used = (first != 0).any(0)
    start = used.int().argmax(1).tolist()
    stop = (used.shape[1] - used.flip(1).int().argmax(1)).tolist()
    for query in range(0, queries, rows):
        part = slice(query, min(query + rows, queries))
        block = _Block.of(tables, part, slice(min(start[part]), max(stop[part])), slice(0, images))
        for image in range(0, batch, images):
            yield replace(block, images=slice(image, min(image + images, batch)))


def _bytes_of_a_row(source: Tensor, tables: Sequence[Tensor]) -> tuple[int, int]:
    """For one query of the first axis, bytes that all heads read in one image, and bytes of the other axes' tables."""
    lengths, read, held, before = list(source.shape[1:-2]), 0, 0, 1
    for table in tables[1:]:
        read += before * math.prod(lengths)
        held += before * table.shape[1] * table.shape[2]
        before *= table.shape[1]
        lengths = lengths[1:]
    element = len(tables[0]) * source.element_size()
    return (read + before) * source.shape[-1] * element, held * element
