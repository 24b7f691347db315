r"""Each operation near a point, as a linear map and what that leaves: ``SLOPES``, the other column of the rules' table.

Let c be our own float64 numbers and a another program's, within their ranges. The rule of an operation f (``rules.py``)
says how far a program's result is from f(a); here f(a) is compared with the number v that our own run goes on with:

    f(a) = v + J (a - c) + s,        |s| <= rest

with a J that both sides use. Linear maps leave nothing. The claim ``chords`` (``proofs/claims/certificate/ranges.py``)
derives the others:

Functions of each value with kinks: on a range [l, h] that passes one, the chord of both ends, in the middle of what the
function leaves below and above it. Elsewhere the slope in the middle of the range, not that at c, which may lie on a
kink. Where pieces are curved, |f''| <= M, the tangent at z leaves M (a - z)^2 / 2, and a chord M (h - l)^2 / 8 more.

A maximum: the value at the place that is largest in c, and half of what others may exceed it by.

Products: dx dy. Softmax p with |dx| <= d: p'' = p ((dx - E dx)^2 - Var dx) along a segment, so 2 d^2 e^(2 d) p. Norms
y = e / s of the centred e, with r the root mean square of its range: (|de| r + 2 |y| r^2) / s^2, s the least.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ...bounds.rounding import OUTWARD
from .call import Call, intervals_in, operator_name
from .interval import U64, Interval, UnboundedError
from .rules import MOVES, _along, _normalised_view, _scales, in_blocks, limits, negative_slope

Map = Callable[..., Tensor]


@dataclass(frozen=True)
class Local:
    """An operation near a point.

    Attributes:
        value: The number that our own run goes on with.
        apply: J, of the differences of every operand that depends on the image, in any precision.
        absolute: |J| or more; None where no entry of J is negative.
        rounded: The part of |J| whose products and sums round; None where J only moves numbers.
        rest: Bound on what J leaves, or None for nothing.
        terms: Roundings of a term of J.
        is_sum: Whether the range of the result is to be tested: it follows from its operands' ranges badly.
        box: Ends of the result's range but for ``rest``, where the rule's are far out.
        passes: The numbers whose range passes a kink, or None for operations without kinks.
    """

    value: Tensor
    apply: Map
    absolute: Map | None = None
    rounded: Map | None = None
    rest: Tensor | None = None
    terms: int = 1
    is_sum: bool = True
    box: tuple[Tensor, Tensor] | None = None
    passes: Tensor | None = None

    @classmethod
    def weighted(cls, value: Tensor, apply: Map, absolute: Map, rest: Tensor | None = None, terms: int = 1) -> Local:
        """A map with weights."""
        return cls(value, apply, absolute, absolute, rest, terms)


@dataclass(frozen=True)
class Point(Interval):
    """A range of every program's numbers, with our own number in it or beside it.

    Attributes:
        center: Our own float64 run's.
        step: The number of the step that it is the result of.
        owed: Rounding that the next operation passes on with its own.
        columns: Pilot numbers, [columns, *shape].
    """

    center: Tensor
    step: int
    owed: Tensor | None = None
    columns: Tensor | None = None

    @property
    def hull(self) -> Interval:
        """The range, with the center in it."""
        return Interval(torch.minimum(self.low, self.center), torch.maximum(self.high, self.center), self.error)

    @property
    def radius(self) -> Tensor:
        """The farthest that a program's number is from the center."""
        return torch.maximum(self.high - self.center, self.center - self.low).clamp(min=0) * OUTWARD


def like(constant: Tensor, t: Tensor) -> Tensor:
    """A constant in the precision of what it is multiplied with."""
    return constant.to(t.dtype)


def convolution(call: Call) -> Local:
    """A convolution, transposed or not."""
    x, weight, bias = _point(call), call.constant("weight"), call.constant("bias")
    fixed = {name: value for name, value in call.arguments.items() if name not in ("input", "weight", "bias")}
    function: Any = getattr(F, call.name)
    if weight is None:
        raise UnboundedError("it has no weight")
    doubled, axis = weight.double(), 0 if "transpose" in call.name else 1

    def run(t: Tensor, weight: Tensor) -> Tensor:
        found: Tensor = function(t, like(weight, t), None, **fixed)
        return found

    def part(channels: slice) -> Tensor:
        return run(x.center[:, channels], doubled[channels] if axis == 0 else doubled[:, channels])

    taps, size = doubled[0, 0].numel(), doubled.abs()
    value = in_blocks(part, x.center.shape[1], taps) if fixed["groups"] == 1 else run(x.center, doubled)
    value = value if bias is None else value + _along(bias.double(), value.ndim, 1)
    terms = taps * (len(doubled) if axis == 0 else doubled.shape[1])
    return Local.weighted(value, lambda t: run(t, doubled), lambda t: run(t, size), terms=terms)


def linear(call: Call) -> Local:
    """A linear layer."""
    x, weight, bias = _point(call), call.constant("weight"), call.constant("bias")
    if weight is None:
        raise UnboundedError("it has no weight")
    doubled = weight.double()
    size, inner = doubled.abs(), doubled.shape[-1]
    value = in_blocks(lambda part: F.linear(x.center[..., part], doubled[:, part]), inner)
    value = value if bias is None else value + bias.double()
    return Local.weighted(
        value, lambda t: F.linear(t, like(doubled, t)), lambda t: F.linear(t, like(size, t)), terms=inner
    )


def averaged(call: Call) -> Local:
    """Averages, sums, interpolation: maps without negative weights."""
    x = _point(call)
    return Local.weighted(call.run(x.center), call.run, call.run, terms=64 + x.center.numel())


def batch_norm(call: Call) -> Any:
    """Batch normalisation with the statistics that it has."""
    x, mean, variance = _point(call), call.constant("running_mean"), call.constant("running_var")
    if mean is None or variance is None:
        raise UnboundedError("batch norm takes its statistics from the batch")
    weight, bias = call.constant("weight"), call.constant("bias")
    factor = (variance.double() + call["eps"]).rsqrt() * (1.0 if weight is None else weight.double())
    factor, center = (_along(one, x.center.ndim, 1) for one in (factor, mean.double()))
    value = (x.center - center) * factor
    value = value if bias is None else value + _along(bias.double(), value.ndim, 1)
    size = factor.abs()
    found = Local.weighted(value, lambda t: t * like(factor, t), lambda t: t * like(size, t))
    return found if call.name == "batch_norm" else [found, None, None]


def moved(call: Call) -> Any:
    """Operations that only move numbers; constants among them do not differ."""

    def run(tensors: Sequence[Tensor], constant: Callable[[Tensor], Tensor]) -> Any:
        given = iter(tensors)
        if call.name in ("view", "_unsafe_view"):
            return next(given).reshape(call["size"])
        return call.with_each(lambda _: next(given), constant)

    found = run([_number(one) for one in intervals_in(call.arguments.values())], Tensor.double)
    if isinstance(found, Tensor):
        return Local(found, lambda *ts: run(ts, lambda one: torch.zeros_like(one, dtype=ts[0].dtype)), is_sum=False)

    def one(place: int) -> Local:  # of one tensor: no operation that gives several reads several
        return Local(found[place], lambda t: run([t], torch.zeros_like)[place], is_sum=False)

    return [one(place) for place in range(len(found))]


def pad(call: Call) -> Local:
    """Pixels around the image, of which constants do not differ."""
    mode, pads, value = call.arguments.get("mode", "constant"), call["pad"], call.arguments.get("value") or 0.0

    def padded(t: Tensor, value: float = 0.0) -> Tensor:
        return F.pad(t, pads, mode, value if mode == "constant" else None)

    return Local(padded(_point(call).center, call.arithmetic.held(value)), padded, is_sum=False)


def unchanged(call: Call) -> Local:
    """The same numbers."""
    return Local(_point(call).center, lambda t: t, is_sum=False)


def maximum(call: Call) -> Any:
    """Maxima over windows, or over dimensions."""
    x = _point(call)
    flat, places, shape = _windows(call, x.center)
    rows = places.shape[0]

    def gathered(t: Tensor, fill: float) -> Tensor:  # [..., rows, window]
        t = t.reshape(*flat)
        t = torch.cat([t, t.new_full((*t.shape[:-1], 1), fill)], -1)
        return torch.index_select(t, -1, places.flatten()).reshape(*t.shape[:-1], rows, -1)

    centers, ends = gathered(x.center, -math.inf), [gathered(end, -math.inf) for end in (x.low, x.high)]
    chosen = centers.argmax(-1, keepdim=True)
    index = places.expand(*centers.shape[:-1], -1).gather(-1, chosen).squeeze(-1)
    value = centers.gather(-1, chosen).squeeze(-1)
    others = ends[1].scatter(-1, chosen, -math.inf).amax(-1)
    more = (others - ends[0].gather(-1, chosen).squeeze(-1)).clamp(min=0).nan_to_num(0.0)
    rest = more / 2 * OUTWARD + U64 * 4 * value.abs() * (more > 0)

    def take(t: Tensor) -> Tensor:
        return t.reshape(*flat).gather(-1, index).reshape(shape)

    found = Local(
        (value + more / 2).reshape(shape),
        take,
        rest=rest.reshape(shape),
        is_sum=False,
        passes=(more > 0).reshape(shape),
    )
    return found if len(call.target._schema.returns) == 1 else [found, None]


def _windows(call: Call, x: Tensor) -> tuple[tuple[int, ...], Tensor, torch.Size]:
    """A shape whose last dimension holds all numbers of a window, each window's places in it, and the result's shape.

    Places outside are the number behind the last.
    """
    if call.name == "amax":
        dims = sorted(d % x.ndim for d in (call["dim"] or range(x.ndim)))
        rest = [d for d in range(x.ndim) if d not in dims]
        order = (
            torch.arange(x.numel()).view(x.shape).permute(*rest, *dims).reshape(math.prod(x.shape[d] for d in rest), -1)
        )
        return (x.numel(),), order, call.shape
    axes = int(call.name[-2])
    after = call.shape[-axes:]
    along = [_windows_along(call, axis, axes, x.shape[axis - axes], after[axis]) for axis in range(axes)]
    sizes = x.shape[-axes:]
    places = torch.zeros((1, 1), dtype=torch.long)
    outside = torch.zeros((1, 1), dtype=torch.bool)
    for windows, size in zip(along, sizes, strict=True):
        places = (places[:, None, :, None] * size + windows.clamp(min=0)[None, :, None, :]).flatten(0, 1).flatten(1)
        outside = (outside[:, None, :, None] | (windows < 0)[None, :, None, :]).flatten(0, 1).flatten(1)
    count = math.prod(sizes)
    return (*x.shape[:-axes], count), places.masked_fill(outside, count), call.shape


def _windows_along(call: Call, axis: int, axes: int, size: int, count: int) -> Tensor:
    """The pixels of an axis in each of its windows, [windows, pixels]; -1 for none."""
    starts = torch.arange(count)
    if call.name.startswith("adaptive"):
        first, last = starts * size // count, -(-(starts + 1) * size // count)
        steps = torch.arange(int((last - first).max()))
        found = first[:, None] + steps
        return found.masked_fill(found >= last[:, None], -1)

    def of_axis(name: str, default: int) -> int:
        given = call.arguments.get(name) or [default]
        return int((list(given) * axes)[axis] if len(given) == 1 else given[axis])

    kernel = of_axis("kernel_size", 1)
    stride, padding, dilation = of_axis("stride", kernel), of_axis("padding", 0), of_axis("dilation", 1)
    found = starts[:, None] * stride - padding + torch.arange(kernel) * dilation
    return found.masked_fill((found < 0) | (found >= size), -1)


@dataclass(frozen=True)
class Curve:
    """A function of each value by itself, made of pieces.

    Attributes:
        function: Itself.
        slope: Its derivative between kinks.
        kinks: Where its slope jumps, each a number or one for each channel.
        bend: Largest |f''| between kinks.
    """

    function: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    kinks: tuple[float, ...] = ()
    bend: float = 0.0


def curved(curve: Curve, call: Call) -> Local:
    """A function of each value by itself."""
    x, f = _point(call), curve.function
    low, high, middle = x.low, x.high, x.low / 2 + x.high / 2
    base = middle if curve.kinks else x.center
    slope, width = curve.slope(base), high - low
    reach = torch.maximum(high - base, base - low)
    value = slope * x.center + (f(base) - slope * base) if curve.kinks else f(x.center)
    rest = curve.bend / 2 * reach.square()
    passes = functools.reduce(torch.logical_or, ((low < kink) & (high > kink) for kink in curve.kinks), width < 0)
    if bool(passes.any()):
        chord = (f(high) - f(low)) / width.clamp(min=torch.finfo(torch.float64).tiny)
        ends = [low, high, *(torch.full_like(low, kink).clamp(low, high) for kink in curve.kinks)]
        left = torch.stack([f(end) - chord * end for end in ends])
        least, most = left.amin(0), left.amax(0)
        half = (most - least) / 2 + curve.bend / 8 * width.square()
        slope = torch.where(passes, chord, slope)
        value = torch.where(passes, chord * x.center + (least + most) / 2, value)
        rest = torch.where(passes, half, rest)
    size = torch.maximum(torch.maximum(f(low).abs(), f(high).abs()), slope.abs() * (x.hull.largest + base.abs()))
    rounds = passes if curve.bend == 0 else torch.ones_like(passes)
    rest = rest * OUTWARD + torch.where(rounds, 8 * U64 * size, 0.0)
    steepness, moves = slope.abs(), (slope * (low - x.center), slope * (high - x.center))
    inexact = steepness.masked_fill(steepness == 1, 0.0)
    return Local(
        value,
        lambda t: t * like(slope, t),
        lambda t: t * like(steepness, t),
        lambda t: t * like(inexact, t),
        rest,
        is_sum=False,
        box=(value + torch.minimum(*moves), value + torch.maximum(*moves)),
        passes=passes,
    )


def _gate(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1 - s)


def _normal(x: Tensor) -> Tensor:
    return (1 + torch.erf(x / math.sqrt(2))) / 2


CURVES: dict[str, Curve] = {
    "abs": Curve(torch.abs, torch.sign, (0.0,)),
    "sigmoid": Curve(torch.sigmoid, _gate, bend=0.0963),
    "tanh": Curve(torch.tanh, lambda x: 1 - torch.tanh(x).square(), bend=0.7699),
    "silu": Curve(F.silu, lambda x: torch.sigmoid(x) + x * _gate(x), bend=0.5),
    "gelu": Curve(F.gelu, lambda x: _normal(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi), bend=0.798),
    "hardsigmoid": Curve(F.hardsigmoid, lambda x: ((x > -3) & (x < 3)).double() / 6, (-3.0, 3.0)),
    "hardswish": Curve(
        F.hardswish, lambda x: torch.where(x > 3, 1.0, torch.where(x < -3, 0.0, x / 3 + 0.5)), (-3.0, 3.0), 1 / 3
    ),
}


def curve_of(call: Call) -> Curve | None:
    """The function that a call is, if it is one of each value by itself."""
    if call.name in ("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"):
        low, high = limits(call)
        kinks = tuple(end for end in dict.fromkeys((low, high)) if math.isfinite(end))
        return Curve(lambda x: x.clamp(low, high), lambda x: ((x > low) & (x < high)).double(), kinks)
    if call.name in ("leaky_relu", "prelu"):
        below = negative_slope(call)
        return Curve(lambda x: torch.where(x > 0, x, below * x), lambda x: torch.where(x > 0, 1.0, below), (0.0,))
    if call.name == "elu":
        alpha, scale = float(call["alpha"]), float(call["scale"])
        return Curve(
            lambda x: scale * torch.where(x > 0, x, alpha * x.clamp(max=0).expm1()),
            lambda x: scale * torch.where(x > 0, 1.0, alpha * x.clamp(max=0).exp()),
            (0.0,),
            scale * alpha,
        )
    return CURVES.get(call.name)


_KINKED = {**dict.fromkeys(("relu", "leaky_relu", "prelu", "elu", "abs"), (0.0,)), "relu6": (0.0, 6.0)}


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


def pointwise(call: Call) -> Local:
    """A function of each value by itself."""
    curve = curve_of(call)
    if curve is None:
        raise UnboundedError(f"no slope is known for {call.name}")
    return curved(curve, call)


def _point(call: Call) -> Point:
    found = call.x
    if not isinstance(found, Point):
        raise UnboundedError(f"no slope is known for {call.name} of a constant")
    return found


def _number(value: Any) -> Tensor:
    """Our own run's number for an operand."""
    if isinstance(value, Point):
        return value.center
    return (
        value.detach().cpu().double() if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
    )


def added(call: Call) -> Local:
    """A sum or a difference."""
    values, alpha = list(call.arguments.values())[:2], float(call["alpha"])
    signs = {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}[call.name]
    moving = [sign for sign, one in zip(signs, values, strict=True) if isinstance(one, Point)]

    def run(ts: Sequence[Tensor], factors: Sequence[float]) -> Tensor:
        total: Tensor = functools.reduce(torch.add, (t if f == 1 else t * f for f, t in zip(factors, ts, strict=True)))
        return total.expand(call.shape)

    sizes = [abs(factor) for factor in moving]
    value = run([_number(one) for one in values], signs)
    return Local.weighted(value, lambda *ts: run(ts, moving), lambda *ts: run(ts, sizes), terms=3)


def divided(call: Call) -> Local:
    """A quotient by a positive constant."""
    by = _number(call["other"])

    def run(t: Tensor) -> Tensor:
        return (t / like(by, t)).expand(call.shape)

    return Local.weighted(run(_point(call).center), run, run, terms=2)


def multiplied(call: Call) -> Local:
    """A product of two tensors, or of one and a constant."""
    return _bilinear(list(call.arguments.values())[:2], torch.mul, torch.mul, 1)


def matrix_product(call: Call) -> Local:
    """A product of matrices, and what is added to it."""
    *first, a, b = call.matrices
    inner = _number(a).shape[-1]

    def blocked(one: Tensor, other: Tensor) -> Tensor:
        rows = other.unsqueeze(-1) if other.ndim == 1 else other
        found = in_blocks(lambda part: one[..., part] @ rows[..., part, :], inner)
        return found.squeeze(-1) if other.ndim == 1 else found

    found = _bilinear([a, b], torch.matmul, blocked, inner)
    if not first:
        return found
    value, absolute = found.value + _number(first[0]), found.apply if found.absolute is None else found.absolute
    if not isinstance(first[0], Point):
        return Local.weighted(value, found.apply, absolute, found.rest, found.terms)

    def plus(apply: Map) -> Map:
        return lambda t, *ts: t + apply(*ts) if ts else t.expand(value.shape)

    return Local.weighted(value, plus(found.apply), plus(absolute), found.rest, found.terms + 1)


def _bilinear(factors: Sequence[Any], product: Map, own: Map, terms: int) -> Local:
    """x y near both, which leaves dx dy."""
    numbers = [_number(one) for one in factors]
    sizes, points = [one.abs() for one in numbers], [one for one in factors if isinstance(one, Point)]
    places = [place for place, one in enumerate(factors) if isinstance(one, Point)]

    def run(ts: Sequence[Tensor], beside: Sequence[Tensor]) -> Tensor:
        parts = [
            product(t, like(beside[1], t)) if place == 0 else product(like(beside[0], t), t)
            for place, t in zip(places, ts, strict=True)
        ]
        return functools.reduce(torch.add, parts)

    rest = product(points[0].radius, points[1].radius) * OUTWARD if len(points) > 1 else None
    return Local.weighted(own(*numbers), lambda *ts: run(ts, numbers), lambda *ts: run(ts, sizes), rest, 2 * terms + 1)


def gated(call: Call) -> Local:
    """GLU: the first half a times the sigmoid of the second, b."""
    x, dim = _point(call), call["dim"]
    a, b = x.center.chunk(2, dim)
    da, db = x.radius.chunk(2, dim)
    gate, slope = b.sigmoid(), _gate(b)

    def run(t: Tensor, size: Tensor) -> Tensor:
        one, other = t.chunk(2, dim)
        return one * like(gate, t) + other * like(size * slope, t)

    rest = (da * db / 4 + a.abs() * (0.0963 / 2) * db.square()) * OUTWARD
    return Local.weighted(a * gate, lambda t: run(t, a), lambda t: run(t, a.abs()), rest, 4)


def _softmax_slope(p: Tensor, t: Tensor, dim: int) -> Tensor:
    return like(p, t) * (t - (like(p, t) * t).sum(dim, keepdim=True))


def _softmax_rest(p: Tensor, radius: Tensor, dim: int) -> Tensor:
    most = radius.amax(dim, keepdim=True)
    return 2 * most.square() * (2 * most).exp() * p * OUTWARD


def softmax(call: Call) -> Local:
    """Softmax along a dimension."""
    x, dim = _point(call), call["dim"]
    p = x.center.softmax(dim)

    def size(t: Tensor) -> Tensor:
        return like(p, t) * (t + (like(p, t) * t).sum(dim, keepdim=True))

    return Local.weighted(
        p, lambda t: _softmax_slope(p, t, dim), size, _softmax_rest(p, x.radius, dim), p.shape[dim] + 3
    )


def attended(call: Call) -> Local:
    """softmax(Q K^T s) V."""
    if not all(isinstance(call[name], Point) for name in ("query", "key", "value")):
        raise UnboundedError("no slope is known for attention to constants")
    points: list[Point] = [call[name] for name in ("query", "key", "value")]
    (q, k, v), (dq, dk, dv) = ([one.center for one in points], [one.radius for one in points])
    factor = 1 / math.sqrt(q.shape[-1]) if call.arguments.get("scale") is None else float(call["scale"])
    p = (q @ k.mT * factor).softmax(-1)
    left = abs(factor) * (dq @ dk.mT)
    spread = abs(factor) * (dq @ k.abs().mT + q.abs() @ dk.mT) + left
    rest = p * (left + (p * left).sum(-1, keepdim=True)) + _softmax_rest(p, spread, -1)
    shift = p * (spread + (p * spread).sum(-1, keepdim=True)) + rest

    def run(ts: Sequence[Tensor], signs: Sequence[Tensor], sign: int) -> Tensor:
        tq, tk, tv = ts
        q, k, v, p = (like(one, tq) for one in signs)
        s = factor if sign < 0 else abs(factor)
        scores = (tq @ k.mT + q @ tk.mT) * s
        return p * (scores + sign * (p * scores).sum(-1, keepdim=True)) @ v + p @ tv

    sizes = [one.abs() for one in (q, k, v, p)]
    return Local.weighted(
        p @ v,
        lambda *ts: run(ts, (q, k, v, p), -1),
        lambda *ts: run(ts, sizes, 1),
        (rest @ v.abs() + shift @ dv) * OUTWARD,
        2 * q.shape[-1] + 3 * k.shape[-2] + 8,
    )


def normalised(call: Call) -> Local:
    """Layer, group and instance norm by each image's own statistics."""
    x, shape, view = _point(call), call.x.low.shape, _normalised_view(call)
    weight, bias = (
        _scales(call.constant(name), default, x.low, call.name) for name, default in (("weight", 1.0), ("bias", 0.0))
    )

    def mean(t: Tensor) -> Tensor:
        return t.mean(-1, keepdim=True)

    c, radius = x.center.reshape(view), x.radius.reshape(view)
    centred, moved = c - mean(c), radius + mean(radius)
    deviation, most = (mean(centred.square()) + call["eps"]).sqrt(), mean(radius.square()).sqrt()
    y, least = centred / deviation, deviation - most * OUTWARD
    if not bool((least > deviation / 2).all()):
        raise UnboundedError("its deviation may vanish")
    rest = (moved * most + 2 * ((centred.abs() + moved) / least) * most.square()) / least.square()

    def run(t: Tensor, sign: int, y: Tensor, weight: Tensor) -> Tensor:
        t = t.reshape(view)
        e = t + sign * mean(t)
        found = (e + sign * like(y, t) * mean(like(y, t) * e)) / like(deviation, t)
        return found.reshape(shape) * like(weight, t)

    return Local.weighted(
        y.reshape(shape) * weight + bias,
        lambda t: run(t, -1, y, weight),
        lambda t: run(t, 1, y.abs(), weight.abs()),
        (rest.reshape(shape) * weight.abs()) * OUTWARD,
        2 * c.shape[-1] + 8,
    )


_POOLS = tuple(f"{kind}max_pool{axes}d" for kind, axes in itertools.product(("", "adaptive_"), (1, 2, 3)))

SLOPES: dict[str, Callable[[Call], Any]] = {
    **dict.fromkeys(MOVES, moved),
    **dict.fromkeys((*_POOLS, "amax"), maximum),
    **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    **dict.fromkeys(("clone", "contiguous", "alias", "detach", "lift_fresh_copy"), unchanged),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout", "_to_copy", "to"), unchanged),
    **{f"conv{axes}d": convolution for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": convolution for axes in (1, 2, 3)},
    "linear": linear,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), batch_norm),
    **{f"{kind}avg_pool{axes}d": averaged for axes in (1, 2, 3) for kind in ("", "adaptive_")},
    **dict.fromkeys(("mean", "sum", "upsample_linear1d", "upsample_bilinear2d"), averaged),
    **dict.fromkeys(("matmul", "bmm", "mm", "addmm", "baddbmm"), matrix_product),
    **dict.fromkeys(CURVES, pointwise),
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "leaky_relu", "prelu"), pointwise),
    "elu": pointwise,
    **dict.fromkeys(("add", "sub", "rsub"), added),
    "mul": multiplied,
    "div": divided,
    "glu": gated,
    "softmax": softmax,
    "scaled_dot_product_attention": attended,
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), normalised),
}
