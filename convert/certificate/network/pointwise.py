r"""Functions of each value by itself, and sums, products and quotients of two tensors.

The claim ``activation-slopes`` (``proofs/claims/certificate/propagation.py``) derives the Lipschitz constants,
``chords`` (``proofs/claims/certificate/ranges.py``) what a linear map leaves. An activation that is not exact is taken
to err by at most ``ACTIVATION_ULPS`` units in the last place of the larger of 1 and |x|.

On a range [l, h] that passes a kink, the map is the chord of both ends, in the middle of what the function leaves
below and above it. Elsewhere it has the slope in the middle of the range, not that at c, which may lie on a kink. Where
pieces are curved, |f''| <= M, the tangent at z leaves M (a - z)^2 / 2, and a chord M (h - l)^2 / 8 more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ...bounds.rounding import OUTWARD, unit_roundoff
from ...programs.walk import operator_name
from .call import Call
from .interval import U64, Interval, UnboundedError
from .operation import Exact, Local, Point, along, like, number, point_of, points_in
from .products import bilinear

SILU_SLOPE, GELU_SLOPE, HARDSWISH_SLOPE = 1.1, 1.13, 1.5

Function = Callable[[Tensor], Tensor]
Ends = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Curve:
    """A function of each value by itself, made of pieces.

    Attributes:
        function: Itself.
        slope: Its derivative between kinks.
        steepest: Its Lipschitz constant.
        kinks: Where its slope jumps.
        bend: Largest |f''| between kinks, or on the range.
        ends: From the smallest and largest value to bounds on the function's; None where it grows.
        scale: The quantity that its rounding is relative to, as a multiple of the larger of 1 and |x|.
        reach: The largest number on the way, as a multiple of that.
        size: The quantity that its rounding is relative to, where it is another one.
        lost: Error where what it reads is taken for 0.
    """

    function: Function
    slope: Function
    steepest: float | Tensor = 1.0
    kinks: tuple[float, ...] = ()
    bend: float | Tensor = 0.0
    ends: Ends | None = None
    scale: float | Tensor = 1.0
    reach: float = 1.0
    size: Tensor | None = None
    lost: float | Tensor = 0.0

    def bounds(self, call: Call) -> Exact:
        """Bounds on its result."""
        x, f = call.x, self.function
        low, high = (f(x.low), f(x.high)) if self.ends is None else self.ends(x.low, x.high)
        scale = self.scale * x.largest.clamp(min=1) if self.size is None else self.size
        return Exact(Interval(low, high, x.error * self.steepest), scale, self.lost, self.reach * scale)

    def near(self, call: Call) -> Local:
        """It near a point: a tangent, or a chord where the range passes a kink."""
        x, f = point_of(call), self.function
        low, high, middle = x.low, x.high, x.low / 2 + x.high / 2
        base = middle if self.kinks else x.center
        slope, width = self.slope(base), high - low
        value = slope * x.center + (f(base) - slope * base) if self.kinks else f(x.center)
        rest = self.bend / 2 * torch.maximum(high - base, base - low).square()
        passes = functools.reduce(torch.logical_or, ((low < kink) & (high > kink) for kink in self.kinks), width < 0)
        if bool(passes.any()):
            chord, least, most = self._chord(low, high)
            half = (most - least) / 2 + self.bend / 8 * width.square()
            slope = torch.where(passes, chord, slope)
            value = torch.where(passes, chord * x.center + (least + most) / 2, value)
            rest = torch.where(passes, half, rest)
        size = torch.maximum(torch.maximum(f(low).abs(), f(high).abs()), slope.abs() * (x.hull.largest + base.abs()))
        rounds = passes if isinstance(self.bend, float) and self.bend == 0 else torch.ones_like(passes)
        rest = rest * OUTWARD + torch.where(rounds, 8 * U64 * size, 0.0)
        moves = slope * (low - x.center), slope * (high - x.center)
        box = value + torch.minimum(*moves), value + torch.maximum(*moves)
        return _map_of(value, slope, rest, passes, box)

    def _chord(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The slope of the chord of a range, and the least and most that the function differs from it by."""
        f, width = self.function, high - low
        chord = (f(high) - f(low)) / width.clamp(min=torch.finfo(torch.float64).tiny)
        ends = [low, high, *(torch.full_like(low, kink).clamp(low, high) for kink in self.kinks)]
        left = torch.stack([f(end) - chord * end for end in ends])
        return chord, left.amin(0), left.amax(0)


def _map_of(value: Tensor, slope: Tensor, rest: Tensor, passes: Tensor, box: tuple[Tensor, Tensor]) -> Local:
    """A map with a slope for each value, whose products round but for slopes of 1 and -1."""
    steepness = slope.abs()
    inexact = steepness.masked_fill(steepness == 1, 0.0)
    return Local(
        value,
        lambda t: t * like(slope, t),
        lambda t: t * like(steepness, t),
        lambda t: t * like(inexact, t),
        rest,
        is_sum=False,
        box=box,
        passes=passes,
    )


def _gate(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1 - s)


def _normal(x: Tensor) -> Tensor:
    return (1 + torch.erf(x / math.sqrt(2))) / 2


def _gated(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of x times a number between 0 and 1: between min(x, 0) and max(x, 0)."""
    return low.clamp(max=0), high.clamp(min=0)


def _of_abs(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    sizes = low.abs(), high.abs()
    return torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(*sizes)), torch.maximum(*sizes)


CURVES: dict[str, Curve] = {
    "abs": Curve(torch.abs, torch.sign, kinks=(0.0,), ends=_of_abs),
    "sigmoid": Curve(torch.sigmoid, _gate, 0.25, bend=0.0963),
    "tanh": Curve(torch.tanh, lambda x: 1 - torch.tanh(x).square(), bend=0.7699),
    "silu": Curve(F.silu, lambda x: torch.sigmoid(x) + x * _gate(x), SILU_SLOPE, bend=0.5, ends=_gated),
    "gelu": Curve(  # x (1 + erf(x / sqrt 2)) may come before the quotient by 2
        F.gelu,
        lambda x: _normal(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        GELU_SLOPE,
        bend=0.798,
        ends=_gated,
        reach=2.0,
    ),
    "hardsigmoid": Curve(F.hardsigmoid, lambda x: ((x > -3) & (x < 3)).double() / 6, 1 / 6, (-3.0, 3.0)),
    "hardswish": Curve(  # x min(max(x + 3, 0), 6) comes before the quotient by 6
        F.hardswish,
        lambda x: torch.where(x > 3, 1.0, torch.where(x < -3, 0.0, x / 3 + 0.5)),
        HARDSWISH_SLOPE,
        (-3.0, 3.0),
        1 / 3,
        _gated,
        reach=6.0,
    ),
}


def curve(call: Call) -> Curve:
    """The function of ``CURVES`` that a call is.

    Raises:
        UnboundedError: GELU is approximated.
    """
    if call.arguments.get("approximate", "none") != "none":
        raise UnboundedError(f"no Lipschitz constant is known for GELU with approximate={call['approximate']!r}")
    return CURVES[call.name]


def elu(call: Call) -> Curve:
    """x above 0, and alpha (e^x - 1) below, both times a scale: ELU, and SELU.

    It grows, is no steeper than the scale times the larger of 1 and alpha, and no larger than that times |x|.

    Raises:
        UnboundedError: A factor is negative, or x has one.
    """
    alpha, scale = float(call["alpha"]), float(call["scale"])
    if not (alpha >= 0 and scale >= 0 and call["input_scale"] == 1):
        raise UnboundedError("no Lipschitz constant is known for ELU with a negative factor, or a factor of its input")
    steepest = scale * max(1.0, alpha)
    return Curve(
        lambda x: scale * torch.where(x > 0, x, alpha * x.clamp(max=0).expm1()),
        lambda x: scale * torch.where(x > 0, 1.0, alpha * x.clamp(max=0).exp()),
        steepest,
        (0.0,),
        scale * alpha,
        scale=max(1.0, steepest),
    )


def root(call: Call) -> Curve:
    """A root or a power with a constant exponent: x^e, with |f'| and |f''| largest at an end of the range.

    An exponent that the dtype does not hold is e (1 + d), |d| <= u, and x^e is x^(e d) times as large.

    Raises:
        UnboundedError: What it is taken of may be small or negative, and the exponent is no positive integer.
    """
    x = call.x.hull if isinstance(call.x, Point) else call.x
    e = float(_EXPONENTS.get(call.name, call.arguments.get("exponent", 0.0)))
    is_whole = e in (1.0, 2.0, 3.0, 4.0)
    if not is_whole and not bool((x.low >= call.arithmetic.smallest).all()):
        raise UnboundedError(f"a power {e:g} of what may be small or negative is not bounded")
    ends = (x.largest, x.largest) if is_whole else (x.low, x.high)

    def largest(power: float) -> Tensor:
        return torch.maximum(*(end**power for end in ends)) * OUTWARD

    def of_ends(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        sizes = _of_abs(low, high) if is_whole and e % 2 == 0 else (low, high)
        powers = [end**e for end in sizes]
        return (powers[0], powers[1]) if e > 0 else (powers[1], powers[0])

    steepest = abs(e) * largest(e - 1)
    bend = torch.zeros_like(x.low) if e == 1 else abs(e * (e - 1)) * largest(e - 2)
    lost = call.arithmetic.smallest * steepest
    if call.arithmetic.held(e) != e:
        logs = torch.maximum(x.low.log().abs(), x.high.log().abs())
        lost = lost + _astray(call, abs(e) * logs) * largest(e)
    return Curve(
        lambda t: t**e, lambda t: e * t ** (e - 1), steepest, bend=bend, ends=of_ends, size=largest(e), lost=lost
    )


_EXPONENTS = {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "square": 2.0}


def wave(call: Call) -> Curve:
    """A sine or a cosine, whose slopes and second derivatives are at most 1."""
    f, slope = (torch.sin, torch.cos) if call.name == "sin" else (torch.cos, lambda x: -torch.sin(x))

    def ends(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        middle = low / 2 + high / 2
        aside = torch.where(low == high, 0.0, (high - low) / 2 * OUTWARD + 4 * U64 * middle.abs())
        return (f(middle) - aside).clamp(min=-1), (f(middle) + aside).clamp(max=1)

    return Curve(f, slope, 1.0, bend=1.0, ends=ends, size=torch.ones_like(call.x.low), lost=call.arithmetic.smallest)


def exponential(call: Call) -> Curve:
    """b^x of a positive constant b: the slope is ln b times it, the second derivative that squared times it.

    A constant that the dtype does not hold is b (1 + d), |d| <= u, and the power (1 + d)^x times as large.

    Raises:
        UnboundedError: The constant is not positive.
    """
    base = float(call.arguments.get("self", math.e)) if call.name == "pow" else math.e
    if not 0 < base < math.inf:
        raise UnboundedError("a power of what may be small or negative is not bounded")
    x, rate = call.x.hull if isinstance(call.x, Point) else call.x, abs(math.log(base)) * OUTWARD
    f = torch.exp if call.name == "exp" else lambda t: base**t
    most = torch.maximum(f(x.low), f(x.high)) * OUTWARD

    def ends(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return (f(low), f(high)) if base >= 1 else (f(high), f(low))

    lost = call.arithmetic.smallest * rate * most
    if call.name == "pow" and call.arithmetic.held(base) != base:
        lost = lost + _astray(call, x.largest) * most
    return Curve(f, lambda t: math.log(base) * f(t), rate * most, bend=rate**2 * most, ends=ends, size=most, lost=lost)


def _astray(call: Call, times: Tensor) -> Tensor:
    """Most that (1 + d)^times - 1 can be, |d| <= u of the dtype."""
    return (times * (unit_roundoff(call.arithmetic.dtype) * (1 + 2.0**-7))).expm1() * OUTWARD


@dataclass(frozen=True)
class Power:
    """A power of a constant exponent, or of a constant.

    Attributes:
        curve: As a function of what is no constant.
        call: The call, with that as its first argument.
    """

    curve: Curve
    call: Call

    @classmethod
    def of(cls, call: Call) -> Power:
        """Describes a call.

        Raises:
            UnboundedError: Both are tensors.
        """
        base, exponent = call["self"], call["exponent"]
        if isinstance(exponent, Tensor | Interval) and isinstance(base, Tensor | Interval):
            raise UnboundedError("no bound is known for a power of two tensors")
        if not isinstance(exponent, Interval):
            return cls(root(call), call)
        turned = replace(call, arguments={"exponent": exponent, "self": base})
        return cls(exponential(turned), turned)

    def bounds(self, call: Call) -> Exact:
        """Bounds on its result."""
        return self.curve.bounds(self.call)

    def near(self, call: Call) -> Local:
        """It near a point."""
        return self.curve.near(self.call)


def negative(call: Call) -> Interval:
    """The numbers with the other sign."""
    return -call.x


def negated(call: Call) -> Local:
    """The same near a point."""
    return Local(-point_of(call).center, torch.neg, torch.abs, is_sum=False)


def clamp(call: Call) -> Curve:
    """min(max(x, smallest), largest), without rounding.

    Raises:
        UnboundedError: Its limits are tensors, or no number of its dtype is between them.
    """
    low, high = _LIMITS.get(call.name, (call.arguments.get("min", -math.inf), call.arguments.get("max", math.inf)))
    if call.name == "hardtanh":
        low, high = call["min_val"], call["max_val"]
    ends = -math.inf if low is None else low, math.inf if high is None else high
    if any(isinstance(end, Tensor | Interval) for end in ends):
        raise UnboundedError("no bound is known for limits that are tensors")
    low, high = map(call.arithmetic.held, ends)  # as its dtype holds them
    if not (low <= high and low < math.inf and high > -math.inf):
        raise UnboundedError(f"no number of {call.arithmetic.dtype} is between the limits {ends[0]} and {ends[1]}")
    kinks = tuple(end for end in dict.fromkeys((low, high)) if math.isfinite(end))
    return Curve(lambda x: x.clamp(low, high), lambda x: ((x > low) & (x < high)).double(), kinks=kinks)


_LIMITS = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}


def leaky(call: Call) -> Curve:
    """max(x, 0) + slope min(x, 0), with a slope for all values or, for PReLU, one for each channel.

    Its steepness is the larger of 1 and |slope|. With a slope below 0 it is not monotone: then it reaches 0 inside.
    """
    slope = _slope_below(call)

    def function(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, slope * x)

    def ends(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        at_ends = function(low), function(high)
        inside = torch.where((low < 0) & (high > 0), 0.0, at_ends[0])
        found = torch.stack([*at_ends, inside])
        return found.amin(0), found.amax(0)

    steepest = slope.abs().clamp(min=1)
    return Curve(function, lambda x: torch.where(x > 0, 1.0, slope), steepest, (0.0,), ends=ends, scale=steepest)


def _slope_below(call: Call) -> Tensor:
    """The slope below 0, for all values or for each channel."""
    if call.name != "prelu":
        return torch.tensor(float(call["negative_slope"]), dtype=torch.float64, device="cpu")
    weight = call.constant("weight")
    slopes = torch.zeros((), device="cpu") if weight is None else weight.double()
    return along(slopes, call.x.low.ndim) if slopes.numel() > 1 else slopes.view(())


_KINKED = {**dict.fromkeys(("relu", "leaky_relu", "prelu", "elu"), (0.0,)), "relu6": (0.0, 6.0)}


def kinks_of(node: fx.Node) -> tuple[float, ...]:
    """Where the operations that read a node's result have kinks."""
    found: list[float] = []
    for user in node.users:
        name = operator_name(user.target) if isinstance(user.target, torch._ops.OpOverload) else ""
        if name in ("hardtanh", "clamp", "clamp_min", "clamp_max"):
            found += (float(limit) for limit in user.args[1:] if isinstance(limit, int | float))
            found += (-1.0, 1.0) if name == "hardtanh" and len(user.args) == 1 else ()
        found += _KINKED.get(name, CURVES[name].kinks if name in CURVES else ())
    return tuple(found)


def glu(call: Call) -> Exact:
    """The first half times the sigmoid of the second."""
    parts = zip(*(bound.chunk(2, call["dim"]) for bound in (call.x.low, call.x.high, call.x.error)), strict=True)
    a, b = (Interval(*part) for part in parts)
    gate = Interval(b.low.sigmoid(), b.high.sigmoid(), b.error / 4)
    lost = call.arithmetic.smallest * (1 + a.largest)
    return Exact(_multiplied(a, gate), a.largest * b.largest.clamp(min=1), lost)


def gated(call: Call) -> Local:
    """GLU near a point: the first half a times the sigmoid of the second, b."""
    x, dim = point_of(call), call["dim"]
    a, b = x.center.chunk(2, dim)
    da, db = x.radius.chunk(2, dim)
    gate, slope = b.sigmoid(), _gate(b)

    def run(t: Tensor, size: Tensor) -> Tensor:
        one, other = t.chunk(2, dim)
        return one * like(gate, t) + other * like(size * slope, t)

    rest = (da * db / 4 + a.abs() * (CURVES["sigmoid"].bend / 2) * db.square()) * OUTWARD
    return Local.weighted(a * gate, lambda t: run(t, a), lambda t: run(t, a.abs()), rest, 4)


def _multiplied(a: Interval, b: Interval) -> Interval:
    """Bounds on a b: |a b - a' b'| <= |a| |b - b'| + |b'| |a - a'|."""
    corners = torch.stack(torch.broadcast_tensors(*(x * y for x in (a.low, a.high) for y in (b.low, b.high))))
    return Interval(corners.amin(0), corners.amax(0), a.largest * b.error + b.largest * a.error)


def multiply(call: Call) -> Exact:
    """A product, of which either factor may be taken for 0."""
    a, b = _operands(call)
    return Exact(_multiplied(a, b), a.largest * b.largest, call.arithmetic.smallest * (a.largest + b.largest))


def multiplied(call: Call) -> Local:
    """A product of two tensors, or of one and a constant, near a point."""
    return bilinear(list(call.arguments.values())[:2], torch.mul, torch.mul, 1)


def add(call: Call) -> Exact:
    """A sum or a difference, of which one operand may have a factor."""
    a, b = _operands(call)
    if call.name == "rsub":
        a, b = b, a
    if call["alpha"] != 1:
        if call.name == "rsub":
            raise UnboundedError("no bound is known for rsub with a factor")
        b = _multiplied(b, call.arithmetic.scalar(float(call["alpha"])))
    b = b if call.name == "add" else -b
    return Exact(Interval(a.low + b.low, a.high + b.high, a.error + b.error), a.largest + b.largest)


def added(call: Call) -> Local:
    """A sum or a difference near a point."""
    values, alpha = list(call.arguments.values())[:2], float(call["alpha"])
    signs = {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}[call.name]
    moving = [sign for sign, one in zip(signs, values, strict=True) if isinstance(one, Point)]

    def run(ts: Sequence[Tensor], factors: Sequence[float]) -> Tensor:
        total: Tensor = functools.reduce(torch.add, (t if f == 1 else t * f for f, t in zip(factors, ts, strict=True)))
        return total.expand(call.shape)

    sizes = [abs(factor) for factor in moving]
    value = run([number(one) for one in values], signs)
    return Local.weighted(value, lambda *ts: run(ts, moving), lambda *ts: run(ts, sizes), terms=3)


def divide(call: Call) -> Exact:
    """A quotient by what is positive: |a / b - a' / b'| <= (|a - a'| + |a' / b'| |b - b'|) / b.

    Raises:
        UnboundedError: The divisor may be negative, or so small that its inverse overflows.
    """
    if call.arguments.get("rounding_mode") is not None:
        raise UnboundedError("no bound is known for a quotient that is rounded to an integer")
    a, b = _operands(call)
    smallest = call.arithmetic.smallest
    if not bool((b.low >= smallest).all()):
        raise UnboundedError("a quotient by what may be small or negative is not bounded")
    inverse, most = Interval(1 / b.high, 1 / b.low, torch.zeros_like(b.low)), a.largest / b.low
    found = _multiplied(a, inverse)
    error = found.error + most * b.error / b.low if isinstance(call["other"], Interval) else found.error
    lost = smallest / b.low + smallest * a.largest  # its inverse may be subnormal
    return Exact(Interval(found.low, found.high, error), most, lost)


def divided(call: Call) -> Local:
    """A quotient near a point: of a / b it leaves |d_b| (|d_a| + |a / b| |d_b|) / (b min b)."""
    a, b = call["self"], call["other"]
    top, by, points = number(a), number(b), points_in((a, b))
    value = (top / by).expand(call.shape)

    def run(ts: Sequence[Tensor], quotient: Tensor) -> Tensor:
        given = iter(ts)
        first = next(given)
        found = first / like(by, first) if isinstance(a, Point) else like(quotient, first) * first / like(by, first)
        for other in given:  # the divisor
            found = found + like(quotient, other) * other / like(by, other)
        return found.expand(call.shape)

    rest = None
    if isinstance(b, Point):
        least = torch.minimum(b.low, b.center)
        moved = a.radius if isinstance(a, Point) else torch.zeros_like(top)
        rest = (b.radius * (moved + value.abs() * b.radius) / (by * least) * OUTWARD).expand(call.shape)
    return Local.weighted(
        value,
        lambda *ts: run(ts, -(top / by)),
        lambda *ts: run(ts, (top / by).abs()),
        rest,
        terms=2 if len(points) == 1 else 4,
    )


def _operands(call: Call) -> tuple[Interval, Interval]:
    """Bounds on both operands, of one shape."""
    a, b = map(call.operand, list(call.arguments.values())[:2])
    shape = torch.broadcast_shapes(a.low.shape, b.low.shape)
    return a.map(lambda bound: bound.expand(shape)), b.map(lambda bound: bound.expand(shape))
