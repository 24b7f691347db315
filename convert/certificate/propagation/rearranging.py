"""What moving, joining, averaging and combining values makes of their intervals."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from .interval import Arithmetic, Interval, UnboundedError, checked

_INTERPOLATION_ROUNDINGS = 16
_WEIGHED_AXES = {"nearest": 0, "nearest-exact": 0, "linear": 1, "bilinear": 2}  # along how many pixels are weighed


def reshaped(x: Interval, before: torch.Size, after: torch.Size) -> Interval:
    """Bounds on a tensor with the same values in the same order, in another shape."""
    if before[:2] == after[:2]:
        return x
    if len(x.low) > 1 and len(after) == 2 and before[0] == after[0]:
        repeats = math.prod(before[2:])
        return Interval(*(bound.repeat_interleave(repeats) for bound in (x.low, x.high, x.error)))
    return x.merged()


def averaged(x: Interval, terms: int, arithmetic: Arithmetic, *, quotients: int = 2, narrowings: int = 1) -> Interval:
    """Bounds on an average of so many values of a channel: their sum, then a quotient or a product with an inverse.

    Args:
        x: Bounds on the values.
        terms: How many are averaged, at most.
        arithmetic: How it rounds.
        quotients: How many roundings the quotient costs: an inverse that is rounded and a product, unless it is more.
        narrowings: How often a value is rounded to the dtype.

    Raises:
        UnboundedError: There are none, or their sum may overflow.
    """
    if terms == 0:
        raise UnboundedError("an average of no values is not a number")
    total, roundings = terms * x.largest, terms - 1 + quotients
    return arithmetic.rounded(x, x.largest, roundings, same=x.is_equal, reach=total, narrowings=narrowings)


def interpolated(x: Interval, mode: str, arithmetic: Arithmetic) -> Interval:
    """Bounds on convex combinations of neighbouring pixels.

    In half precision, weights, products and sums may each be rounded to it along each axis. A weight that is subnormal
    errs by less than the unit roundoff, of which there is one more for it.

    Raises:
        UnboundedError: The mode weighs pixels in another way, or a sum may overflow.
    """
    if mode not in _WEIGHED_AXES:
        raise UnboundedError(f"no bound is known for interpolation in mode {mode!r}")
    axes = _WEIGHED_AXES[mode]
    if axes == 0:
        return x
    return arithmetic.rounded(x, x.largest, _INTERPOLATION_ROUNDINGS, same=x.is_equal, narrowings=3 * axes + 1)


def concatenated(parts: Sequence[Interval], shapes: Sequence[torch.Size], dimension: int) -> Interval:
    """Bounds on tensors put behind one another along a dimension."""
    if dimension % len(shapes[0]) == 1:
        intervals = [part.expanded(shape[1]) for part, shape in zip(parts, shapes, strict=True)]
        return Interval(
            *(torch.cat([getattr(interval, name) for interval in intervals]) for name in ("low", "high", "error"))
        )
    return functools.reduce(Interval.joined, (part.merged() for part in parts))


def negated(x: Interval) -> Interval:
    """Bounds on -x."""
    return Interval(-x.high, -x.low, x.error)


def added(a: Interval, b: Interval, arithmetic: Arithmetic) -> Interval:
    """Bounds on a + b."""
    exact = Interval(a.low + b.low, a.high + b.high, a.error + b.error)
    return arithmetic.rounded(exact, a.largest + b.largest, 1, same=a.is_equal and b.is_equal)


def multiplied(a: Interval, b: Interval, arithmetic: Arithmetic) -> Interval:
    """Bounds on a b: |a b - a' b'| <= |a| |b - b'| + |b'| |a - a'|."""
    corners = torch.stack([x * y for x in (a.low, a.high) for y in (b.low, b.high)])
    scale = a.largest * b.largest
    error = a.largest * b.error + b.largest * a.error
    exact = checked(Interval(corners.amin(0), corners.amax(0), error))
    lost = arithmetic.smallest * (a.largest + b.largest)  # either factor may be taken for 0
    return arithmetic.rounded(exact, scale, 1, same=a.is_equal and b.is_equal, lost=lost)
