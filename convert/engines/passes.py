"""The passes over an image, one along each axis, in the cheaper of two forms.

Attention along one axis is a product with a table of probabilities (``axes.py``) or, where the score is quadratic, a
stencil (``stencil.py``). Costs are in multiply-adds of a large matrix product, measured on CPUs; they decide between
two forms with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..size import Size
from ..spec import ConvSpec
from ..transforms import is_traced, is_transformed
from .axes import AxisTable
from .base import convolution_padding, dropped
from .processor import REORDERING, SHUFFLING
from .stencil import Stencil

_MATRIX = 2_000  # multiplying one more small matrix


@dataclass(frozen=True)
class Axis:
    """Queries and keys along one axis of a layer, for one size of its input.

    Attributes:
        keys: Pixels of the padded axis.
        queries: Number of queries, at start, start + stride, ... of the padded axis.
        start: The first query.
        stride: Pixels between queries.
        first: Key that the images' first pixel is.
        step: Keys from one pixel of the images to the next; the others, and those beyond the images, have the value 0.
        pixels: Pixels of the images along this axis.
    """

    keys: int
    queries: int
    start: int
    stride: int
    first: int
    step: int
    pixels: int

    @classmethod
    def of(cls, spec: ConvSpec, size: Size, axis: int) -> Axis:
        """Builds an axis of a layer's input of this size; the images are what ``pad_as_convolution`` makes of it."""
        keys, queries = spec.padded_size(size)[axis], spec.output_size(size)[axis]
        first, step = convolution_padding(spec)[axis], spec.stuffing[axis]
        pixels = keys - 2 * first
        unseen = dropped(spec, size)
        if unseen is None:
            first, step, pixels = 0, 1, keys
        elif spec.transposed:
            before, after = unseen[axis]
            first, pixels = first + before * step, size[axis] - before - after
        return cls(keys, queries, spec.middle[axis], spec.query_stride[axis], first, step, pixels)

    def seen(self, probabilities: Tensor) -> Tensor:
        """Drops the probabilities of keys whose values are zero: [..., keys] -> [..., pixels]."""
        if self.step == 1:
            return probabilities.narrow(-1, self.first, self.pixels)
        return probabilities[..., self.first : self.first + self.step * (self.pixels - 1) + 1 : self.step]

    def stencil(self, alpha: float, center: float, dtype: torch.dtype) -> Stencil | None:
        """A head's probabilities as a stencil, or None if there is no such stencil."""
        if self.step != 1 or self.keys != self.pixels + 2 * self.first:
            return None
        return Stencil.of(
            alpha,
            self.start + center,
            keys=self.keys,
            queries=self.queries,
            stride=self.stride,
            zeros=self.first,
            dtype=dtype,
        )


class AxisAttention(Protocol):
    """One head's attention along one axis."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""

    def rows_of(self, x: Tensor) -> Tensor:
        """[batch, channels, keys, columns] -> [batch, channels, queries, columns]."""

    def columns_of(self, x: Tensor) -> Tensor:
        """[batch, channels, rows, keys] -> [batch, channels, rows, queries]."""


@dataclass(frozen=True)
class Passes:
    """The attention of a layer's heads along every axis.

    Attributes:
        axes: For each axis, the distinct attentions along it.
        memory_format: The fastest memory format of the images.
        cost: What they cost, in multiply-adds of a large matrix product.
    """

    axes: tuple[tuple[AxisAttention, ...], ...]
    memory_format: torch.memory_format
    cost: float = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes that the passes hold."""
        return sum(attention.nbytes for axis in self.axes for attention in axis)

    def __call__(self, x: Tensor) -> Tensor:
        """Applies the first attention along every axis: [batch, channels, *keys] -> [batch, channels, *queries]."""
        attended = x.contiguous(memory_format=self.memory_format)
        for axis in range(len(self.axes)):
            attended = self.along(axis, 0, attended)
        return attended

    def along(self, axis: int, number: int, x: Tensor) -> Tensor:
        """Applies one of the attentions along an axis: [batch, channels, *keys] -> [batch, channels, *queries].

        Args:
            axis: Number of the axis.
            number: Number of the attention among those along it.
            x: Images; along the other axes they keep their size.
        """
        attention, dimension = self.axes[axis][number], axis + 2
        if x.ndim == 4:
            return attention.rows_of(x) if axis == 0 else attention.columns_of(x)
        if x.ndim == 3:
            return attention.columns_of(x.unsqueeze(2)).squeeze(2)
        if dimension == x.ndim - 1:
            return torch.unflatten(attention.columns_of(x.flatten(2, -2)), 2, x.shape[2:-1])
        images = x.flatten(1, dimension - 1).flatten(3)
        attended = torch.unflatten(attention.rows_of(images), 3, x.shape[dimension + 1 :])
        return torch.unflatten(attended, 1, x.shape[1:dimension])


def stencils_are_fast(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch convolves images of this dtype channel by channel faster than it multiplies tables."""
    if is_transformed() or device.type != "cpu" or dtype != torch.float32:
        return False
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def cheapest_passes(
    tables: Sequence[Sequence[Tensor]],
    stencils: Sequence[Sequence[Stencil | None]] | None,
    *,
    images: tuple[int, int],
    kept: bool = True,
    channels_last: bool = False,
) -> Passes:
    """The cheapest form of the passes along the axes, each on the results of those before.

    Args:
        tables: For each axis, probabilities [queries, pixels] of each head along it.
        stencils: The same as stencils, where there are; None if they are not wanted.
        images: Images, of one channel each, that the attentions along the last axis (second number), and along the
            others (first), are applied to.
        kept: Whether the passes are kept for later calls.
        channels_last: Whether the channels of a pixel lie next to each other already.
    """
    if is_traced():  # sizes are symbols, and so would costs be
        return Passes(tuple(tuple(map(AxisTable.dense, part)) for part in tables), torch.contiguous_format)
    choices, shapes = [], [part[0].shape for part in tables]
    for axis, part in enumerate(tables):
        is_last = axis == len(tables) - 1
        before = images[is_last] * math.prod(queries for queries, _ in shapes[:axis])
        after = math.prod(pixels for _, pixels in shapes[axis + 1 :])
        narrow = None if stencils is None else stencils[axis]
        choices.append(_Choice.of(part, narrow, before=before, after=after, kept=kept, is_last=is_last))
    reordering = REORDERING * images[0] * math.prod(pixels for _, pixels in shapes)
    best, *others = _forms(choices, reordering, channels_last=channels_last)
    for form in others:  # not min(): torch.compile does not trace its key
        best = form if form.cost < best.cost else best
    return best


def _forms(choices: Sequence[_Choice], reordering: float, *, channels_last: bool) -> Iterator[Passes]:
    """Every form: tables, stencils along all axes but the last, stencils on either memory format.

    Args:
        choices: What there is along each axis.
        reordering: Cost of bringing the images into the other memory format.
        channels_last: Which one they are in.
    """
    *leading, last = choices
    tables, stencils = tuple(c.tables for c in choices), tuple(c.stencils for c in choices)
    apart, together = (reordering, 0.0) if channels_last else (0.0, reordering)
    yield Passes(tables, torch.contiguous_format, sum(c.table_cost for c in choices) + apart)
    if leading and all(c.stencils for c in leading):
        cost = sum(c.shuffled_cost for c in leading) + last.table_cost + apart
        yield Passes((*stencils[:-1], last.tables), torch.contiguous_format, cost)
    if all(stencils):
        yield Passes(stencils, torch.contiguous_format, sum(c.shuffled_cost for c in choices) + apart)
        if len(choices) == 2:
            cost = sum(c.stencil_cost for c in choices) + together
            yield Passes(stencils, torch.channels_last, cost)


@dataclass(frozen=True)
class _Choice:
    """The forms of the attentions along one axis, and what they cost.

    Attributes:
        tables: All of them as tables.
        table_cost: Cost of the tables.
        stencils: All of them as stencils; empty where there is not one for each.
        stencil_cost: Cost of the stencils, on images whose channels lie together.
        shuffled_cost: Cost of the stencils on contiguous images.
    """

    tables: tuple[AxisAttention, ...]
    table_cost: float
    stencils: tuple[AxisAttention, ...]
    stencil_cost: float
    shuffled_cost: float

    @classmethod
    def of(
        cls,
        tables: Sequence[Tensor],
        stencils: Sequence[Stencil | None] | None,
        *,
        before: int,
        after: int,
        kept: bool,
        is_last: bool,
    ) -> _Choice:
        """Compares the forms.

        Args:
            tables: Probabilities [queries, pixels] of each head.
            stencils: As for ``cheapest_passes``.
            before: Images, times queries along the axes before.
            after: Pixels along the axes after.
            kept: As for ``cheapest_passes``.
            is_last: Whether it is the last axis, along which a table multiplies all images at once.
        """
        lines = before * after
        made = tuple(AxisTable.of(table, lines, kept=kept) for table in tables)
        matrices = 0 if is_last else _MATRIX * before * len(made)
        table_cost = sum(table.cost(lines) for table in made) + matrices
        found = tuple(stencil for stencil in stencils or () if stencil is not None)
        if len(found) < len(made):
            return cls(made, table_cost, (), math.inf, math.inf)
        cost = sum(stencil.cost(lines) for stencil in found)
        shuffled = cost + SHUFFLING * lines * sum(len(stencil.scale) for stencil in found)
        is_slow = any(stencil.is_slow(along_columns=is_last) for stencil in found)
        return cls(made, table_cost, found, cost, math.inf if is_slow else shuffled)
