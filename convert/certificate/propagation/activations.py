"""Activations: their Lipschitz constants, and the values they can take.

The claim ``activation-slopes`` (``proofs/claims/certificate/propagation.py``) derives the constants. An activation that
is not exact is taken to err by at most ``ACTIVATION_ULPS`` units in the last place of the larger of 1 and |x|. What a
slope makes of a difference is derived in ``proofs/claims/certificate/propagation_rules.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .interval import Arithmetic, Interval, UnboundedError, checked

ACTIVATION_ULPS = 32

SILU_SLOPE, GELU_SLOPE, HARDSWISH_SLOPE = 1.1, 1.13, 1.5


@dataclass(frozen=True)
class Activation:
    """A function of each value by itself.

    Attributes:
        slope: Its Lipschitz constant.
        range: From the smallest and largest value to bounds on the function's.
        is_exact: Whether floating point computes it without rounding.
        scale: What its rounding is relative to, as a multiple of the larger of 1 and |x|.
        reach: The largest number on the way, as a multiple of that.
    """

    slope: float
    range: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    is_exact: bool = False
    scale: float = 1.0
    reach: float = 1.0

    def __call__(self, x: Interval, arithmetic: Arithmetic) -> Interval:
        """Bounds on the function's result; none where those on x are not finite, since x may be NaN there."""
        bounded = x.largest.isfinite()
        low, high = self.range(x.low, x.high)
        low, high = torch.where(bounded, low, -torch.inf), torch.where(bounded, high, torch.inf)
        exact = Interval(low, high, x.error * self.slope)
        if self.is_exact:
            return checked(exact)
        scale = self.scale * x.largest.clamp(min=1)
        return arithmetic.rounded(exact, scale, 2 * ACTIVATION_ULPS, same=x.is_equal, reach=self.reach * scale)


def clamped(smallest: float, largest: float) -> Activation:
    """min(max(x, smallest), largest)."""
    return Activation(
        1.0, lambda low, high: (low.clamp(smallest, largest), high.clamp(smallest, largest)), is_exact=True
    )


def _increasing(slope: float, function: Callable[[Tensor], Tensor], scale: float = 1.0) -> Activation:
    return Activation(slope, lambda low, high: (function(low), function(high)), scale=scale)


def _gated(slope: float, reach: float = 1.0) -> Activation:
    """x times a number between 0 and 1: between min(x, 0) and max(x, 0)."""
    return Activation(slope, lambda low, high: (low.clamp(max=0), high.clamp(min=0)), reach=reach)


RELU = clamped(0.0, float("inf"))
RELU6 = clamped(0.0, 6.0)
SIGMOID = _increasing(0.25, torch.sigmoid)
TANH = _increasing(1.0, torch.tanh)
HARDSIGMOID = _increasing(1 / 6, nn.functional.hardsigmoid)
SILU = _gated(SILU_SLOPE)
GELU = _gated(GELU_SLOPE, reach=2.0)  # x (1 + erf(x / sqrt 2)) may come before the quotient by 2
HARDSWISH = _gated(HARDSWISH_SLOPE, reach=6.0)  # x min(max(x + 3, 0), 6) comes before the quotient by 6


def leaky_relu(slope: float) -> Activation:
    """max(x, 0) + slope min(x, 0)."""
    if slope < 0:
        raise UnboundedError("a leaky ReLU with a negative slope is not monotone")
    steepest = max(1.0, slope)
    return _increasing(steepest, lambda x: torch.where(x > 0, x, slope * x), scale=steepest)


BY_NAME: dict[str, Activation] = {
    "relu": RELU,
    "relu6": RELU6,
    "sigmoid": SIGMOID,
    "tanh": TANH,
    "hardsigmoid": HARDSIGMOID,
    "hardswish": HARDSWISH,
    "silu": SILU,
}
