"""How another program lays out a tensor: axes in another order, merged or split, rows or channels permuted or padded.

A layout is found by the values themselves: of all orders of axes whose reshaped result has the shape that is looked
for, the one that correlates best is taken, if it correlates by at least ``LEAST`` and the next different one does not.
Where none does, orders of rows or channels are looked for, by the correlation of each with each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 0.9  # correlation of values that are taken for the same
_CLEAR = 0.02  # by which the best layout is to be ahead of others
_FARTHER = 4.0  # or how many times farther the next is from the other's numbers
_SAMPLED = 4096  # numbers that are compared of each layout
_AXES = 5  # at most, of which all orders are tried
_SORTED = 512  # rows or channels whose order is looked for, at most
_NAMES = {
    (0, 2, 3, 1): "NCHW for NHWC",
    (0, 3, 1, 2): "NHWC for NCHW",
    (0, 2, 1): "last two axes swapped",
    (1, 0, 2): "batch second",
    (1, 0): "transposed",
}


@dataclass(frozen=True)
class Layout:
    """What brings a tensor into the layout that another has.

    Attributes:
        axes: Order of its axes.
        shape: What it is then reshaped to.
        order: Of the entries of an axis, which are taken, by axis.
        correlation: With the other, afterwards.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[tuple[int, Tensor], ...] = ()
    correlation: float = 1.0

    def apply(self, value: Tensor) -> Tensor:
        """The tensor in the other's layout."""
        for axis, order in self.order:
            value = value.index_select(axis, order.to(value.device))
        return value.permute(self.axes).reshape(self.shape)

    def words(self, given: Sequence[int]) -> str:
        """The layout of a tensor of the given shape in words; "" where it is as it is."""
        found = []
        for axis, order in self.order:
            kept = len(order)
            if kept < given[axis]:
                found.append(f"{given[axis] - kept} padded of axis {axis} left out")
            if not bool((order[1:] > order[:-1]).all()):
                found.append(f"axis {axis} in another order")
        if self.axes != tuple(range(len(self.axes))):
            found.append(_NAMES.get(self.axes, f"axes in the order {', '.join(map(str, self.axes))}"))
        if len(given) != len(self.shape):
            found.append(f"{'x'.join(map(str, given))} as {'x'.join(map(str, self.shape))}")
        return ", ".join(found)


def correlation(one: Tensor, other: Tensor) -> float:
    """Of the numbers of two tensors of one size; 1 where both are the same everywhere."""
    a, b = (torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in (one, other))
    a, b = (each.detach().reshape(-1).double().nan_to_num(0.0, 0.0, 0.0) for each in (a, b))
    if bool((a == b).all()):
        return 1.0
    a, b = a - a.mean(), b - b.mean()
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0 else 0.0


def aligned(value: Tensor, like: Tensor) -> Layout | None:
    """The layout that makes a tensor most like another, or None where none does.

    Args:
        value: A tensor of any shape.
        like: One of about the same values, in the layout that is looked for.
    """
    if not value.numel() or not like.numel() or value.ndim > _AXES:
        return None
    found = _by_axes(value, like)
    if found is not None or like.ndim == 0:
        return found
    for axis in range(value.ndim):  # padded, or in another order
        for order in _orders(value, like, axis):
            sorted_ = value.index_select(axis, order)
            found = _by_axes(sorted_, like)
            if found is not None:
                return Layout(found.axes, found.shape, ((axis, order),), found.correlation)
    return None


def _by_axes(value: Tensor, like: Tensor) -> Layout | None:
    if value.numel() != like.numel():
        return None
    places = _places(like)
    expected = like.reshape(-1)[places]
    flat = value.reshape(-1)
    found: list[tuple[float, tuple[int, ...], Tensor]] = []
    for axes in itertools.permutations(range(value.ndim)):
        if value.ndim == like.ndim and [value.shape[axis] for axis in axes] != list(like.shape):
            continue
        given = flat[_source(places, value.shape, axes)]
        found.append((correlation(given, expected), axes, given))
    if not found:
        return None
    found.sort(key=lambda one: (-one[0], one[1]))
    best = found[0]
    others = [one for one in found[1:] if not torch.equal(one[2], best[2])]
    apart = [_apart(one[2], expected) for one in (best, *others[:1])]
    is_clear = not others or others[0][0] < best[0] - _CLEAR or apart[1] > _FARTHER * apart[0]
    if best[0] < LEAST or not is_clear:
        return None
    return Layout(best[1], tuple(like.shape), (), best[0])


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).nan_to_num(0.0, 0.0, 0.0).norm())


def _places(like: Tensor) -> Tensor:
    """Numbers that are compared: all, or as many as ``_SAMPLED``, drawn by a seed."""
    count = like.numel()
    if count <= _SAMPLED:
        return torch.arange(count, device=like.device)
    return torch.randint(count, (_SAMPLED,), generator=torch.Generator().manual_seed(0), device="cpu").to(like.device)


def _source(places: Tensor, shape: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Where the numbers at these places lie in a tensor of this shape, after its axes were put into an order."""
    found, rest = torch.zeros_like(places), places
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for axis in reversed(axes):
        found = found + rest % shape[axis] * strides[axis]
        rest = rest // shape[axis]
    return found


def _orders(value: Tensor, like: Tensor, axis: int) -> Iterator[Tensor]:
    """Entries of an axis that may be those of an axis of the other: the first, the last, or by their values."""
    count = value.shape[axis]
    for other in range(like.ndim):
        wanted = like.shape[other]
        if not 1 < wanted <= count or value.numel() // count != like.numel() // wanted:
            continue
        if wanted < count:
            yield torch.arange(wanted, device=value.device)
            yield torch.arange(count - wanted, count, device=value.device)
        if count <= _SORTED:
            yield from _by_values(value.movedim(axis, 0).reshape(count, -1), like.movedim(other, 0).reshape(wanted, -1))


def _by_values(rows: Tensor, wanted: Tensor) -> Iterator[Tensor]:
    """The order of rows that are most like the other's, if that is one: by quantiles, which no layout moves."""
    sides = [one.double().sort(1).values for one in (rows, wanted)]
    steps = torch.linspace(0, sides[0].shape[1] - 1, min(sides[0].shape[1], 64), device=rows.device).long()
    apart = torch.cdist(sides[1][:, steps], sides[0][:, steps])
    order = apart.argmin(1)
    if len(order.unique()) == len(order):
        yield order
