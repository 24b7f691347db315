"""Attention along one axis: its queries and keys, its table of probabilities, and the table's product with images.

Far keys weigh next to nothing: they are left out (``without_far_keys``), which makes the table a band. The rows of a
long table are made in blocks, and each block is kept for, and multiplied with, the few pixels that it reads.
``proofs/claims/certificate/accumulation.py`` proves what that costs, ``proofs/claims/computing/factorisation.py`` when
one table smooths the images for all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import Size
from ..bounds.rounding import NEGLIGIBLE, left_out, unit_roundoff
from ..context import is_traced, is_transformed
from ..heads.values import LayerValues
from ..spec import ConvSpec, reversed_pads

BLOCK = 32  # queries that are multiplied with the pixels that they read, where the others would double the work
_KEPT, _KEPT_BYTES = 64, 2**20  # tables of sizes seen lately, and how large one of them may be
_T = TypeVar("_T")


def kept(make: Callable[..., _T]) -> Callable[..., _T]:
    """Keeps what a function makes of numbers: the newest results, none in a trace, whose tensors are symbols."""
    cached = lru_cache(maxsize=_KEPT)(make)

    def call(*numbers: object) -> _T:
        if is_transformed():
            return make(*numbers)
        if not torch.is_inference_mode_enabled():
            return cached(*numbers)
        with torch.inference_mode(False):  # training may meet it later, which cannot use tensors of inference mode
            return cached(*numbers)

    return call


def known(make: Callable[..., _T]) -> Callable[..., _T]:
    """As ``kept``, for numbers made of numbers, which ``torch.compile`` takes as constants."""
    call = kept(make)
    call._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does
    return call


def convolution_padding(spec: ConvSpec) -> tuple[int, ...]:
    """Zeros at both ends of each axis that a convolution call adds by itself."""
    if spec.padding_mode != "zeros" or (spec.is_uneven and not spec.transposed):
        return (0,) * spec.axes
    return tuple(before for before, _ in spec.pads)


def pad_for_tables(spec: ConvSpec, x: Tensor) -> Tensor:
    """The input with its padding, but for zeros that are the same at both ends, which no table reads.

    Returns:
        Of a transposed convolution's input, the pixels that are keys; where there are none, the whole key grid, which
        is all zeros.
    """
    if spec.transposed:
        unseen = dropped(spec, Size(*x.shape[2:]))
        if unseen is None:
            return spec.pad(x)
        return F.pad(x, reversed_pads((-b, -a) for b, a in unseen)) if any(map(any, unseen)) else x
    if spec.padding_mode != "zeros" or spec.is_uneven:
        return spec.pad(x)
    if all(before == after for before, after in spec.pads):
        return x
    return F.pad(x, reversed_pads((0, after - before) for before, after in spec.pads))


def dropped(spec: ConvSpec, size: Size) -> tuple[tuple[int, int], ...] | None:
    """Pixels before and after each axis that a transposed convolution's padding drops; None if no pixel is left."""
    if not spec.transposed:
        return ((0, 0),) * spec.axes
    along = zip(spec.pads, spec.stuffing, strict=True)
    found = tuple((max(0, -(before // step)), max(0, -(after // step))) for (before, after), step in along)
    if any(length <= sum(pair) for length, pair in zip(size, found, strict=True) if any(pair)):
        return None
    return found


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
        """Builds an axis of a layer's input of this size; the images are what ``pad_for_tables`` makes of it."""
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

    @classmethod
    def of_targets(cls, spec: ConvSpec, size: Size, axis: int) -> Axis:
        """The targets that some head reads: along an axis with a single tap the queries, else every pixel."""
        queries = cls.of(spec, size, axis)
        return queries if spec.kernel_size[axis] == 1 else replace(queries, queries=queries.keys, start=0, stride=1)

    def seen(self, probabilities: Tensor) -> Tensor:
        """Drops the probabilities of keys whose values are zero: [..., keys] -> [..., pixels]."""
        if self.step == 1:
            return probabilities.narrow(-1, self.first, self.pixels)
        return probabilities[..., self.first : self.first + self.step * (self.pixels - 1) + 1 : self.step]

    def probabilities(self, alpha: float | Tensor, center: float | Tensor, device: torch.device) -> Tensor:
        """softmax_k(-alpha (k - q - center)^2) in double precision: [..., queries, keys].

        Args:
            alpha: Locality strength: a number, or [num_heads, 1, 1].
            center: Offset of the target from the query, likewise.
            device: Where the table is made.
        """
        targets = self.start + self.stride * torch.arange(self.queries, dtype=torch.float64, device=device)[:, None]
        keys = torch.arange(self.keys, dtype=torch.float64, device=device)
        return (-alpha * (keys - targets - center).square()).softmax(dim=-1)


@dataclass(frozen=True)
class Table:
    """Attention probabilities along one axis.

    Attributes:
        parts: Rows of the table, in order, each without the pixels that none of its queries reads: [queries, pixels].
        spans: First and last pixel of each of them.
    """

    parts: tuple[Tensor, ...]
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, probabilities: Tensor) -> Table:
        """The table in one part."""
        return cls((probabilities,), ((0, probabilities.shape[1]),))

    @classmethod
    def of(cls, rows: Iterable[Tensor]) -> Table:
        """The table of its rows, [queries, all pixels] each: in parts if it is a narrow band, else in one."""
        parts, spans, entries, pixels = list[Tensor](), list[tuple[int, int]](), 0, 0
        for part in rows:
            pixels, entries = part.shape[1], entries + part.numel()
            used = (part != 0).any(0).nonzero()
            begin, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            parts.append(part[:, begin:end].clone())
            spans.append((begin, end))
        if 2 * sum(part.numel() for part in parts) <= entries:
            return cls(tuple(parts), tuple(spans))
        padded = [F.pad(part, (begin, pixels - end)) for part, (begin, end) in zip(parts, spans, strict=True)]
        return cls.whole(torch.cat(padded))

    def along(self, x: Tensor, axis: int) -> Tensor:
        """Applies the table along one axis of images [batch, channels, *size]."""
        dim = axis + 2
        if dim == x.ndim - 1:
            return self._columns(x)
        if dim == x.ndim - 2:
            return self._rows(x)
        return torch.unflatten(self._rows(x.flatten(dim + 1)), -1, x.shape[dim + 1 :])

    def _rows(self, x: Tensor) -> Tensor:
        pairs = zip(self.parts, self.spans, strict=True)
        found = [part @ x[..., begin:end, :] for part, (begin, end) in pairs]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-2)

    def _columns(self, x: Tensor) -> Tensor:
        pairs = zip(self.parts, self.spans, strict=True)
        found = [x[..., begin:end] @ part.T for part, (begin, end) in pairs]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


def table(axis: Axis, alpha: float, center: float, dtype: torch.dtype, device: torch.device) -> Table:
    """The table of a head at rest along one axis, without far keys."""
    make = _make_table if is_traced() or axis.queries * axis.pixels * dtype.itemsize > _KEPT_BYTES else _kept_table
    return make(axis, alpha, center, dtype, device)


def _make_table(axis: Axis, alpha: float, center: float, dtype: torch.dtype, device: torch.device) -> Table:
    def rows(some: Axis) -> Tensor:
        return without_far_keys(some.seen(some.probabilities(alpha, center, device)), dtype).to(dtype)

    if device.type != "cpu" or is_transformed() or axis.queries <= 2 * BLOCK:
        return Table.whole(rows(axis))
    firsts = range(0, axis.queries, BLOCK)
    counted = ((axis.start + axis.stride * first, min(BLOCK, axis.queries - first)) for first in firsts)
    return Table.of(rows(replace(axis, start=start, queries=queries)) for start, queries in counted)


_kept_table = kept(_make_table)


def axis_probabilities(layer: LayerValues, size: Size, axis: int) -> Tensor:
    """Softmax of every head along one axis, computed in double precision: [num_heads, queries, keys]."""
    along, device = Axis.of(layer.spec, size, axis), layer.weight.device
    if layer.axis_scores is not None:
        queries = along.start + along.stride * torch.arange(along.queries, dtype=torch.float64, device=device)
        probabilities = layer.axis_scores.along(axis, queries, along.keys).softmax(dim=-1)
    else:
        alpha, centers = layer.alpha.double()[:, None, None], layer.centers.double()[:, axis, None, None]
        probabilities = along.probabilities(alpha, centers, device)
    return probabilities.to(layer.regime.dtype)


def without_negligible(probabilities: Tensor) -> Tensor:
    """Probabilities with 0 in place of those below ``NEGLIGIBLE`` units of rounding, which change no sum.

    It spares the processor subnormal numbers, which it multiplies many times slower. Learned tables have them anywhere,
    also between two peaks, where ``without_far_keys`` would leave them.
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
