"""One comparison: an observed error and its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Comparison:
    """An observed error beside its bound."""

    check: str  # name of the check that made it, out of ``CHECKS``
    kind: str  # kind of attention: "one-hot", "soft", or "heads anywhere"
    what: str  # description of the compared tensors
    error: float  # the observed error; NaN where a result is no number
    # largest allowed error; 0 where equality must be bitwise. An infinite one allows nothing: inputs are chosen so
    # that the certificate can be finite.
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the error is within a finite bound; NaN never is."""
        return self.error <= self.bound < math.inf

    @property
    def ratio(self) -> float:
        """The error in units of the bound: at most 1 if it holds."""
        if self.holds:
            return self.error / self.bound if self.error > 0 else 0.0
        return self.error / self.bound if 0 < self.bound < math.inf and not math.isnan(self.error) else math.inf

    def __str__(self) -> str:
        if math.isinf(self.error) and self.bound == 0:
            return f"{self.check}, {self.kind}: {self.what}"
        allowed = "0: it must be equal bit for bit" if self.bound == 0 else f"{self.bound:.3g}"
        return f"{self.check}, {self.kind}: {self.what}: error {self.error:.3g}, allowed {allowed}"


@dataclass(frozen=True)
class Comparer:
    """Makes the comparisons of one check on one kind of attention, with one reference."""

    check: str
    kind: str

    def same(self, what: str, observed: Tensor, expected: Tensor) -> Comparison:
        """Compares two tensors that must be equal."""
        unlike = _unlike(observed, expected)
        if unlike is not None:
            return self.wrong(f"{what}, {unlike}")
        difference = 0.0
        if not torch.equal(observed, expected):
            difference = float((observed.double() - expected.double()).abs().max()) or math.inf
        return Comparison(self.check, self.kind, what, difference, 0.0)

    def within(self, what: str, observed: Tensor, expected: Tensor, bound: Tensor) -> Comparison:
        """Compares two outputs [batch, out_channels, *size] with a bound for each channel, or one for all.

        Returns:
            The comparison of the channel that is nearest to its bound, or farthest above it.
        """
        unlike = _unlike(observed, expected)
        if unlike is not None:
            return self.wrong(f"{what}, {unlike}")
        errors = (observed.double() - expected.double()).abs().transpose(0, 1).flatten(1).amax(1).tolist()
        allowed = bound.expand(len(errors)).tolist()
        channels = (Comparison(self.check, self.kind, what, *pair) for pair in zip(errors, allowed, strict=True))
        return max(channels, key=lambda comparison: comparison.ratio)

    def wrong(self, what: str) -> Comparison:
        """A violation that no number describes."""
        return Comparison(self.check, self.kind, what, math.inf, 0.0)


def _unlike(observed: Tensor, expected: Tensor) -> str | None:
    """The difference of two tensors in shape or precision, in words; None if there is none."""
    if (observed.shape, observed.dtype) == (expected.shape, expected.dtype):
        return None
    kinds = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in (observed, expected)]
    return f"{kinds[0]} instead of {kinds[1]}"
