"""The sum over heads whose attention reads the image, forward and backward by hand, in memory linear in the pixels.

    Y = sum_h W_h P_h X,     P_h = softmax over keys of S_h,     S_h = Q_h . K_h + sum_i (a delta_i^2 + b_i delta_i)

where a, b_1, b_2, ... are numbers of every head and query, which eq. (7) multiplies with the relative encoding. The
positional part of a score is so a sum of one term an axis, and no bias of queries times keys is ever formed. Positions
are subtracted before they are multiplied: nothing cancels, as it does in a product of absolute positions.

Queries are taken so many at a time that S stays small, all in the same two blocks of memory: fresh ones would push each
other out of the cache. X, W, Q, K, a and b are kept, and the backward pass computes P again:

    dA_h = W_h^T dY       dP_h = dA_h X^T       dX   += sum_h P_h^T dA_h        (A_h = P_h X)
    dW_h = dY A_h^T       dS_h = P_h (dP_h - sum_k P_h dP_h)
    dQ_h = dS_h K_h       dK_h = dS_h^T Q_h     da, db_i: sums of dS_h |delta_i|^2 and of dS_h delta_i

Derivatives of derivatives are autograd's, with all queries at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...size import Size
from .head_sum import differentiable_backward
from .mixing import all_heads, mixed, mixing_gradients

CHUNK_BYTES = 8 * 2**20  # of the scores of some queries


class Scores(NamedTuple):
    """What scores are made of.

    Attributes:
        queries: Q, [batch, num_heads, queries, key_dim].
        keys: K, [batch, num_heads, key_dim, keys].
        vectors: (a, b_1, b_2, ...), [batch, num_heads, queries, axes + 1].
        positions: Positions of the queries, [queries, axes].
        grid: Size of the key grid.
    """

    queries: Tensor
    keys: Tensor
    vectors: Tensor
    positions: Tensor
    grid: Size


def content_sum(source: Tensor, weight: Tensor, scores: Scores) -> Tensor:
    """sum_h W_h P_h X.

    Args:
        source: X, the padded input [batch, in_channels, *grid].
        weight: W, [num_heads, groups, out_channels / groups, in_channels / groups].
        scores: What the scores are made of.

    Returns:
        [batch, queries, out_channels].
    """
    pixels = source.flatten(2).transpose(1, 2).contiguous()
    inputs = pixels, all_heads(weight), scores.queries.contiguous(), scores.keys.contiguous(), scores.vectors
    summed: Tensor = _ContentSum.apply(*inputs, scores.positions, scores.grid)  # type: ignore[no-untyped-call]
    return summed


class _ContentSum(torch.autograd.Function):
    """``content_sum`` with its derivatives."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, ctx.grid = inputs
        ctx.save_for_backward(*tensors)
        pixels, mixing, queries = tensors[:3]
        output: Tensor = pixels.new_empty(len(pixels), queries.shape[2], len(mixing) * mixing.shape[2])
        for part in _parts(tensors, ctx.grid):
            _, attended = part.attended()
            output[part.image, part.chosen] = mixed(attended, mixing)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once, as checkpointing wants it
        if torch.is_grad_enabled():
            return *differentiable_backward(saved, ctx.needs_input_grad, _plain(saved, ctx.grid), gradients[0]), None
        found = list(map(torch.zeros_like, saved[:5]))
        for part in _parts(saved, ctx.grid):
            part.add_gradients(gradients[0][part.image, part.chosen], found)
        return *found, None, None


def _plain(saved: tuple[Tensor, ...], grid: Size) -> Tensor:
    """The output, of operations that autograd follows."""
    mixing, chosen = saved[1], slice(None)
    images = range(len(saved[0]))
    attended = [_Part(saved, grid, image, chosen).attended()[1] for image in images]
    return torch.stack([mixed(read, mixing) for read in attended])


class _Part:
    """Some queries of one image.

    Args:
        tensors: X, W, Q, K, the vectors and the positions.
        grid: Size of the key grid.
        image: Number of the image.
        chosen: The queries.
        memory: Where scores and probabilities are computed, [2, at least as many entries]; None for new memory.
    """

    def __init__(
        self, tensors: tuple[Tensor, ...], grid: Size, image: int, chosen: slice, memory: Tensor | None = None
    ) -> None:
        self.image, self.chosen, self.grid = image, chosen, grid
        pixels, self.mixing, queries, keys, vectors, positions = tensors
        self.pixels, self.keys = pixels[image], keys[image]
        self.queries, self.vectors = queries[image, :, chosen], vectors[image, :, chosen]
        self.offsets = [
            torch.arange(length, dtype=positions.dtype, device=positions.device) - positions[chosen, axis, None]
            for axis, length in enumerate(grid)
        ]
        shape = (*self.queries.shape[:2], *grid)
        self.memory = None if memory is None else memory[:, : math.prod(shape)].view(2, *shape)

    def attended(self) -> tuple[Tensor, Tensor]:
        """P, [num_heads, queries, keys], and A, [num_heads, queries, in_channels]."""
        scores = self._scores()
        kept = None if self.memory is None else self.memory[1].flatten(2)
        probabilities = torch.softmax(scores, -1, out=kept)
        probabilities = F.threshold(probabilities, _smallest(scores.dtype), 0.0, inplace=kept is not None)
        return probabilities, torch.unflatten(probabilities.flatten(0, 1) @ self.pixels, 0, probabilities.shape[:2])

    def _scores(self) -> Tensor:
        """S, [num_heads, queries, keys], and in place of what is negligible, a number that softmax is fast with.

        Exponentials that are subnormal, or close to it, take a processor many times as long as others.
        """
        *terms, last = map(self._term, range(len(self.grid)))
        for axis, term in enumerate(reversed(terms)):
            kept = self.memory[0] if self.memory is not None and axis == len(terms) - 1 else None
            last = torch.add(term[(..., *(None,) * (axis + 1))], last.unsqueeze(2), out=kept)
        scores = last.flatten(2).baddbmm_(self.queries, self.keys)
        floor = scores.detach().amax(-1, keepdim=True) + 1.25 * math.log(_smallest(scores.dtype))
        return scores.clamp_min_(floor)

    def add_gradients(self, gradient: Tensor, found: list[Tensor]) -> None:
        """Adds the part's derivatives of X, W, Q, K and the vectors; ``gradient`` is dY, [queries, out_channels]."""
        pixels, mixing, queries, keys, vectors = found
        probabilities, attended = self.attended()
        passed, by_weight = mixing_gradients(attended, self.mixing, gradient)
        mixing.add_(by_weight)
        rows = passed.flatten(0, 1)
        pixels[self.image].addmm_(probabilities.flatten(0, 1).T, rows)
        mean = (passed * attended).sum(-1, keepdim=True)
        products = torch.mm(
            rows, self.pixels.T, out=None if self.memory is None else self.memory[0].view(len(rows), -1)
        )
        scores = products.view(probabilities.shape).sub_(mean).mul_(probabilities)
        queries[self.image, :, self.chosen] = torch.bmm(scores, self.keys.transpose(1, 2))
        keys[self.image].baddbmm_(self.queries.transpose(1, 2), scores)
        self._add_to_vectors(torch.unflatten(scores, 2, tuple(self.grid)), vectors[self.image, :, self.chosen])

    def _add_to_vectors(self, scores: Tensor, vectors: Tensor) -> None:
        """Sums of dS |delta|^2 and of dS delta along each axis."""
        for axis, delta in enumerate(self.offsets):
            others = [other + 2 for other in range(len(self.grid)) if other != axis]
            along = scores.sum(others) if others else scores
            vectors[..., 0] += (along * delta.square()).sum(-1)
            vectors[..., axis + 1] += (along * delta).sum(-1)

    def _term(self, axis: int) -> Tensor:
        """a delta^2 + b delta along one axis, [num_heads, queries, length]."""
        delta = self.offsets[axis]
        return self.vectors[..., :1] * delta.square() + self.vectors[..., axis + 1 : axis + 2] * delta


def _parts(tensors: tuple[Tensor, ...] | list[Tensor], grid: Size) -> Iterator[_Part]:
    """Parts whose scores have about ``CHUNK_BYTES``."""
    queries = tensors[2]
    chunk = queries_at_a_time(queries.shape[1], grid, queries.element_size())
    memory = queries.new_empty(2, queries.shape[1] * min(chunk, queries.shape[2]) * math.prod(grid))
    for image in range(len(queries)):
        for start in range(0, queries.shape[2], chunk):
            yield _Part(tuple(tensors), grid, image, slice(start, start + chunk), memory)


def queries_at_a_time(heads: int, grid: Size, element_size: int) -> int:
    """Queries whose scores have about ``CHUNK_BYTES``."""
    return max(1, CHUNK_BYTES // (heads * math.prod(grid) * element_size))


def _smallest(dtype: torch.dtype) -> float:
    """Probabilities up to this are taken for 0: their products may be subnormal."""
    return float(torch.finfo(dtype).tiny ** 0.5)
