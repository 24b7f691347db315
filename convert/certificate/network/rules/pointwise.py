"""Functions of each value by itself, and sums, products and quotients of two tensors.

The claim ``activation-slopes`` (``proofs/claims/certificate/propagation.py``) derives the Lipschitz constants. An
activation that is not exact is taken to err by at most ``ACTIVATION_ULPS`` units in the last place of the larger of 1
and |x|. What a slope makes of a difference, and sums, products and quotients, are derived in
``proofs/claims/certificate/propagation.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .call import Call
from .interval import Interval, UnboundedError, checked
from .roundings import rounded

SILU_SLOPE, GELU_SLOPE, HARDSWISH_SLOPE = 1.1, 1.13, 1.5

Ends = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Activation:
    """A function of each value by itself.

    Attributes:
        slope: Its Lipschitz constant.
        range: From the smallest and largest value to bounds on the function's.
        scale: The quantity that its rounding is relative to, as a multiple of the larger of 1 and |x|.
        reach: The largest number on the way, as a multiple of that.
    """

    slope: float
    range: Ends
    scale: float = 1.0
    reach: float = 1.0

    def __call__(self, call: Call) -> Interval:
        """Bounds on the function's result."""
        x = call.x
        scale = self.scale * x.largest.clamp(min=1)
        return rounded(
            call, Interval(*self.range(x.low, x.high), x.error * self.slope), scale, reach=self.reach * scale
        )


def _increasing(slope: float, function: Callable[[Tensor], Tensor]) -> Activation:
    return Activation(slope, lambda low, high: (function(low), function(high)))


def _gated(slope: float, reach: float = 1.0) -> Activation:
    """x times a number between 0 and 1: between min(x, 0) and max(x, 0)."""
    return Activation(slope, lambda low, high: (low.clamp(max=0), high.clamp(min=0)), reach=reach)


SIGMOID = _increasing(0.25, torch.sigmoid)
ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": SIGMOID,
    "tanh": _increasing(1.0, torch.tanh),
    "hardsigmoid": _increasing(1 / 6, nn.functional.hardsigmoid),
    "silu": _gated(SILU_SLOPE),
    "hardswish": _gated(HARDSWISH_SLOPE, reach=6.0),  # x min(max(x + 3, 0), 6) comes before the quotient by 6
}


def gelu(call: Call) -> Interval:
    """GELU by the error function.

    Raises:
        UnboundedError: It is approximated.
    """
    if call["approximate"] != "none":
        raise UnboundedError(f"no Lipschitz constant is known for GELU with approximate={call['approximate']!r}")
    return _gated(GELU_SLOPE, reach=2.0)(call)  # x (1 + erf(x / sqrt 2)) may come before the quotient by 2


def elu(call: Call) -> Interval:
    """x above 0, and alpha (e^x - 1) below, both times a scale: ELU, and SELU.

    It grows, is no steeper than the scale times the larger of 1 and alpha, and no larger than that times |x|.

    Raises:
        UnboundedError: A factor is negative, or x has one.
    """
    alpha, scale = float(call["alpha"]), float(call["scale"])
    if not (alpha >= 0 and scale >= 0 and call["input_scale"] == 1):
        raise UnboundedError("no Lipschitz constant is known for ELU with a negative factor, or a factor of its input")
    slope = scale * max(1.0, alpha)

    def function(x: Tensor) -> Tensor:
        return scale * torch.where(x > 0, x, alpha * x.clamp(max=0).expm1())

    return Activation(slope, lambda low, high: (function(low), function(high)), scale=max(1.0, slope))(call)


def clamp(call: Call) -> Interval:
    """min(max(x, smallest), largest), without rounding.

    Raises:
        UnboundedError: No number of the dtype is between the limits.
    """
    low, high = _LIMITS.get(call.name, (call.arguments.get("min", -math.inf), call.arguments.get("max", math.inf)))
    if call.name == "hardtanh":
        low, high = call["min_val"], call["max_val"]
    ends = -math.inf if low is None else low, math.inf if high is None else high
    if any(isinstance(end, Tensor | Interval) for end in ends):
        raise UnboundedError("no bound is known for limits that are tensors")
    low, high = map(call.arithmetic.held, ends)
    if not (low <= high and low < math.inf and high > -math.inf):
        raise UnboundedError(f"no number of {call.arithmetic.dtype} is between the limits {ends[0]} and {ends[1]}")
    x = call.x
    return checked(Interval(x.low.clamp(low, high), x.high.clamp(low, high), x.error))


_LIMITS = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}


def leaky(call: Call) -> Interval:
    """max(x, 0) + slope min(x, 0), with a slope for all values or, for PReLU, one for each channel.

    Its steepness is the larger of 1 and |slope|. With a slope below 0 it is not monotone: then it reaches 0 inside.
    """
    x = call.x
    if call.name == "prelu":
        weight = call.constant("weight")
        slopes = torch.zeros(()) if weight is None else weight.double()
        slope = slopes.view(-1, *[1] * (x.low.ndim - 2)) if slopes.numel() > 1 else slopes.view(())
    else:
        slope = torch.tensor(float(call["negative_slope"]), dtype=torch.float64)
    ends = [torch.where(end > 0, end, slope * end) for end in (x.low, x.high)]
    inside = torch.where((x.low < 0) & (x.high > 0), 0.0, ends[0])
    low, high = (torch.stack([*ends, inside]).amin(0), torch.stack([*ends, inside]).amax(0))
    steepest = slope.abs().clamp(min=1)
    exact, scale = Interval(low, high, x.error * steepest), steepest * x.largest.clamp(min=1)
    return rounded(call, exact, scale)


def glu(call: Call) -> Interval:
    """The first half times the sigmoid of the second."""
    halves = [
        Interval(*parts)
        for parts in zip(*(bound.chunk(2, call["dim"]) for bound in vars(call.x).values()), strict=True)
    ]
    a, b = halves
    gate = Interval(b.low.sigmoid(), b.high.sigmoid(), b.error / 4)
    exact, lost = multiplied(a, gate), call.arithmetic.smallest * (1 + a.largest)
    return rounded(call, exact, a.largest * b.largest.clamp(min=1), lost=lost)


def multiplied(a: Interval, b: Interval) -> Interval:
    """Bounds on a b: |a b - a' b'| <= |a| |b - b'| + |b'| |a - a'|."""
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    low = torch.minimum(torch.minimum(corners[0], corners[1]), torch.minimum(corners[2], corners[3]))
    high = torch.maximum(torch.maximum(corners[0], corners[1]), torch.maximum(corners[2], corners[3]))
    return Interval(low, high, a.largest * b.error + b.largest * a.error)


def multiply(call: Call) -> Interval:
    """A product, of which either factor may be taken for 0."""
    a, b = operands(call)
    lost = call.arithmetic.smallest * (a.largest + b.largest)
    return rounded(call, multiplied(a, b), a.largest * b.largest, lost=lost)


def add(call: Call) -> Interval:
    """A sum or a difference, of which one operand may have a factor."""
    a, b = operands(call)
    if call.name == "rsub":
        a, b = b, a
    if call["alpha"] != 1:
        if call.name == "rsub":
            raise UnboundedError("no bound is known for rsub with a factor")
        b = multiplied(b, call.arithmetic.scalar(float(call["alpha"])))
    b = b if call.name == "add" else -b
    exact = Interval(a.low + b.low, a.high + b.high, a.error + b.error)
    return rounded(call, exact, a.largest + b.largest)


def divide(call: Call) -> Interval:
    """A quotient by what is positive and the same in both programs.

    Raises:
        UnboundedError: The divisor depends on the images, or may be negative, or so small that its inverse overflows.
    """
    if isinstance(call["other"], Interval) or call.arguments.get("rounding_mode") is not None:
        raise UnboundedError("a quotient by what may be small or negative is not bounded")
    a, b = operands(call)
    smallest = call.arithmetic.smallest
    if not bool((b.low >= smallest).all()):
        raise UnboundedError("a quotient by what may be small or negative is not bounded")
    inverse = Interval(1 / b.high, 1 / b.low, torch.zeros_like(b.low))
    lost = smallest / b.low + smallest * a.largest  # its inverse may be subnormal
    return rounded(call, multiplied(a, inverse), a.largest / b.low, lost=lost)


def operands(call: Call) -> tuple[Interval, Interval]:
    """Bounds on both operands, of one shape."""
    a, b = map(call.operand, list(call.arguments.values())[:2])
    shape = torch.broadcast_shapes(a.low.shape, b.low.shape)
    return a.map(lambda bound: bound.expand(shape)), b.map(lambda bound: bound.expand(shape))


def cast(call: Call) -> Interval:
    """The same numbers in another precision."""
    if call.arithmetic.dtype == torch.float64:
        return call.x
    return rounded(call, call.x, call.x.largest)
