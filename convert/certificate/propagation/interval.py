"""Bounds on a tensor of both networks: on its values, and on how far these are apart.

An ``Interval`` is a box and an error. The claim ``error-propagation`` (``proofs/claims/certificate/propagation.py``)
says how operations act on it: an affine map with weights w takes an error e to sum |w| e, a map with Lipschitz constant
L to L e; and since both networks compute the operation in floating point, twice its rounding is added. Where the errors
of all inputs are 0, both networks do the same operation on the same numbers, and the error stays 0. The rules
themselves are derived in ``proofs/claims/certificate/propagation_rules.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...bounds.rounding import OUTWARD, gamma, unit_roundoff
from ...bounds.subnormal import magnitudes


class UnboundedError(Exception):
    """An operation for which no bound is known; the text says why."""


@dataclass(frozen=True)
class Interval:
    """Bounds on a tensor, for each entry of its dimension 1 or for all entries at once.

    Attributes:
        low: No value of either network is smaller, [channels] or [1], in double precision.
        high: No value of either network is larger, likewise.
        error: No two values at the same place differ by more, likewise.
    """

    low: Tensor
    high: Tensor
    error: Tensor

    @classmethod
    def of(cls, low: float, high: float, error: float = 0.0) -> Interval:
        """The same bounds for all entries."""
        return cls(*(torch.tensor([value], dtype=torch.float64, device="cpu") for value in (low, high, error)))

    @classmethod
    def unknown(cls) -> Interval:
        """The unbounded interval, which holds for any values."""
        return cls.of(-math.inf, math.inf, math.inf)

    @property
    def largest(self) -> Tensor:
        """Largest absolute value."""
        return torch.maximum(self.low.abs(), self.high.abs())

    @property
    def is_bounded(self) -> bool:
        """Whether both bounds of every entry are finite."""
        return bool(self.largest.isfinite().all())

    @property
    def is_equal(self) -> bool:
        """Whether both networks are known to have the same numbers here."""
        return not bool(self.error.any())

    def merged(self) -> Interval:
        """The same bounds for all entries, whatever order they are in."""
        return Interval(self.low.min().view(1), self.high.max().view(1), self.error.max().view(1))

    def expanded(self, channels: int) -> Interval:
        """Bounds for each of so many channels."""
        own = self if len(self.low) in (1, channels) else self.merged()
        return Interval(own.low.expand(channels), own.high.expand(channels), own.error.expand(channels))

    def joined(self, other: Interval) -> Interval:
        """Bounds on what is in either of two tensors."""
        return Interval(
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            torch.maximum(self.error, other.error),
        )

    def with_zero(self) -> Interval:
        """Bounds that zero padding does not break."""
        return Interval(self.low.clamp(max=0), self.high.clamp(min=0), self.error)


@dataclass(frozen=True)
class Arithmetic:
    """How an operation between the layers rounds.

    Attributes:
        dtype: The precision of its operands and its result.
    """

    dtype: torch.dtype

    @property
    def computed(self) -> torch.dtype:
        """The precision it is computed in, at least float32."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def smallest(self) -> float:
        """The smallest normal number of that precision; smaller ones may be taken for 0."""
        return torch.finfo(self.computed).smallest_normal

    def relative(self, terms: int, narrowings: int = 1) -> float:
        """Relative error of a sum of so many products, accumulated in at least float32 and rounded to the dtype."""
        narrowing = unit_roundoff(self.dtype) if self.computed != self.dtype else 0.0
        return (1 + gamma(terms, unit_roundoff(self.computed))) * (1 + narrowing) ** narrowings - 1

    def held(self, value: float) -> float:
        """A number as a tensor of the dtype holds it; infinite if it is too large."""
        return float(torch.tensor(value, dtype=self.dtype, device="cpu"))

    def scalar(self, value: float) -> Interval:
        """A number as an operand, which is rounded to the dtype if that does not hold it.

        Raises:
            UnboundedError: It is too large for the precision that is computed in, or not a number.
        """
        if not abs(value) <= torch.finfo(self.computed).max:
            raise UnboundedError(f"the number {value} is no finite number of {self.computed}")
        spread = 0.0
        if self.held(value) != value:
            spread = unit_roundoff(self.dtype) * abs(value) * OUTWARD + self.smallest
        return Interval(*(Interval.of(end, end).low for end in (value - spread, value + spread, 0.0)))

    def rounded(
        self,
        exact: Interval,
        scale: Tensor,
        terms: int,
        *,
        same: bool,
        lost: Tensor | float = 0.0,
        reach: Tensor | None = None,
        narrowings: int = 1,
    ) -> Interval:
        """Bounds on the computed result of an operation.

        No partial sum exceeds (1 + its relative error) times the sum of all absolute values. Where that is below the
        largest number of what is computed in, or of the dtype if more than the result is rounded to it, nothing
        overflows on the way.

        Args:
            exact: Bounds on its exact result; the error is what the operation makes of its inputs' errors.
            scale: Bound on the sum of the absolute values of all terms.
            terms: How many roundings a term goes through.
            same: Whether both networks do it on the same numbers.
            lost: What is lost where operands are taken for 0, beside 5 times ``smallest`` a term (claim
                ``underflow-errors``).
            reach: Bound on the absolute values of what is computed on the way, if they may be larger than ``scale``.
            narrowings: How often a term is rounded to the dtype, if that is narrower than what is computed in.

        Raises:
            UnboundedError: Something may overflow.
        """
        limits, relative = torch.finfo(self.dtype), self.relative(terms, narrowings)
        between = torch.finfo(self.computed if narrowings == 1 else self.dtype)
        largest = (scale if reach is None else reach) * (1 + relative)
        if bool(((largest >= between.max) & scale.isfinite()).any()):
            raise UnboundedError("what is computed on the way may exceed the largest number of its dtype")
        underflow = (lost + 5 * terms * self.smallest) * (1 + relative)
        if self.computed != self.dtype:
            underflow = underflow + narrowings * limits.smallest_normal * limits.eps * (1 + relative)
        rounding = scale * relative + underflow
        low, high = exact.low - rounding, exact.high + rounding
        known = torch.where(rounding.isfinite(), 0.0, torch.inf)  # equal numbers are equal unless they overflow
        error = known if same else (exact.error + 2 * rounding) * OUTWARD
        return checked(Interval(low, high, error), limits.max)


def checked(interval: Interval, limit: float = math.inf) -> Interval:
    """The interval, with errors no larger than the values allow; unknown channels stay unknown.

    Raises:
        UnboundedError: Values may exceed the limit of the dtype.
    """
    if math.isfinite(limit) and bool(((interval.largest >= limit) & interval.largest.isfinite()).any()):
        raise UnboundedError("values may exceed the largest number of the dtype")
    odd = interval.low.isnan() | interval.high.isnan()
    low = torch.where(odd, -math.inf, interval.low)
    high = torch.where(odd, math.inf, interval.high)
    error = torch.where(interval.error.isnan(), math.inf, interval.error)
    return Interval(low, high, torch.minimum(error, _width(low, high)))


def _width(low: Tensor, high: Tensor) -> Tensor:
    """high - low, rounded up, also where a processor takes the difference for 0."""
    width = (high - low).clamp(min=torch.finfo(low.dtype).smallest_normal)
    return torch.where(high == low, 0.0, torch.nextafter(width, torch.full_like(width, math.inf)))


def affine(x: Interval, weight: Tensor, bias: Tensor | None, *, groups: int = 1) -> tuple[Interval, Tensor]:
    """Bounds on the exact result of an affine map, and on the sum of the absolute values of its terms.

    Args:
        x: Bounds on its input, [in_channels] each.
        weight: [out_channels, in_channels / groups, taps].
        bias: [out_channels], or None.
        groups: Groups of channels that do not mix.
    """

    def product(matrix: Tensor, values: Tensor) -> Tensor:
        return (torch.unflatten(matrix, 0, (groups, -1)) @ values.view(groups, -1, 1)).flatten()

    positive = weight.clamp(min=0).sum(-1, dtype=torch.float64).cpu()
    negative = weight.clamp(max=0).sum(-1, dtype=torch.float64).cpu()
    absolute = magnitudes(weight).sum(-1)
    low = product(positive, x.low) + product(negative, x.high)
    high = product(positive, x.high) + product(negative, x.low)
    scale = product(absolute, x.largest)
    if bias is not None:
        shift = bias.detach().double().cpu()
        low, high, scale = low + shift, high + shift, scale + shift.abs()
    outward = scale * (OUTWARD - 1)  # covers the rounding here
    error = product(absolute, x.error) * OUTWARD
    return Interval(low - outward, high + outward, error), scale * OUTWARD
