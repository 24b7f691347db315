r"""Normalisations by statistics of the values themselves, softmax, and attention made of it.

What they round is derived in ``proofs/claims/certificate/operation_roundings.py``, and what a linear map leaves of them
in the claim ``chords`` (``proofs/claims/certificate/ranges.py``).

Layer, group and instance norm of n values: with c = x - mean, s^2 = mean c^2 + eps and y = c / s,

    dy_i = (dc_i - y_i mean_j(y_j dc_j)) / s,      |dy_i| <= (|dc_i| + |y_i| mean_j |y_j||dc_j|) / s

on the segment between two points of a box, where every factor is at most its largest value in the box. Layer norm's
variance is Welford's or that of two passes, whose rounding e is relative to 2 s rms(x) + e mean x^2 (Chan, Golub and
LeVeque, 1983); the others' may be mean x^2 - mean^2, relative to 2 mean x^2. It moves y by less than its share of s^2.
In half precision the variance and s^2 may be stored. Where they are subnormal, each errs by half of the smallest number
d, and 1 / s by at most d / s^2 of itself (claim ``operation-roundings``), of which more than a half is refused. So what
is stored of s^2 is no less than d, and 1 / s is finite.

Softmax: dp_i = p_i (1 - p_i) dx_i - p_i sum_{j != i} p_j dx_j, likewise; in a box, p_i is largest where x_i is and the
others are smallest. A score's rounding is absolute, d = u |x - max|, so a share errs by e^(2 d) - 1 of itself.

What their derivatives at a point leave: softmax p with |dx| <= d has p'' = p ((dx - E dx)^2 - Var dx) along a segment,
so 2 d^2 e^(2 d) p. Norms y = e / s of the centred e, with r the root mean square of its range, leave
(|de| r + 2 |y| r^2) / s^2, s the least (claim ``chords``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...bounds.rounding import EXP_ULPS, OUTWARD, gamma, unit_roundoff
from .call import Call
from .interval import U64, Arithmetic, Interval, UnboundedError, linear_map
from .operation import Exact, Local, Map, Point, along, like, number, point_of
from .products import product

_MOST = 0.5  # largest share of a variance that rounding may take; beyond, nothing is claimed
_BLOCK = 16  # keys, at least, after which a softmax that is not stored is rescaled


@dataclass(frozen=True)
class Norm:
    """A norm by the statistics of values that lie together.

    Attributes:
        view: The shape in which they lie along the last dimension.
        weight: What values are multiplied with, as the network holds or computes it, or None.
        bias: What is added, likewise.
        along: From these two to the shape of the values.
        eps: Added to the variance.
        is_centred: Whether the variance is of differences from the mean.
    """

    view: tuple[int, ...]
    weight: Tensor | Interval | None
    bias: Tensor | Interval | None
    along: Map
    eps: float
    is_centred: bool

    def bounds(self, call: Call) -> Exact:
        """Bounds on its result.

        Raises:
            UnboundedError: Rounding may eat up the variance.
        """
        x, shape, (weight, bias) = call.x, call.x.low.shape, map(self._bounded, (self.weight, self.bias), (1.0, 0.0))
        flat = x.map(lambda bound: bound.reshape(self.view))
        exact, *others = self._normalised(flat, call.arithmetic, call.terms)
        exact, (scale, lost, inverse) = (
            exact.map(lambda bound: bound.reshape(shape)),
            (x.reshape(shape) for x in others),
        )
        ends = torch.stack([y * w for y in (exact.low, exact.high) for w in (weight.low, weight.high)])
        size = weight.largest
        error = (exact.error * size + exact.largest * weight.error) * OUTWARD
        moved = Exact(Interval(ends.amin(0), ends.amax(0), error), scale * size).shifted(bias)
        lost = lost * size + call.arithmetic.smallest * (8 + exact.largest)
        reach = torch.maximum(
            moved.scale, (1 + size) * inverse
        )  # the weight may be multiplied with 1 / deviation first
        return Exact(moved.bounds, moved.scale, lost, reach)

    def _bounded(self, values: Any, default: float) -> Interval:
        """Bounds on a weight or a bias, in the shape of the values."""
        if values is None:
            return Interval.point(torch.full((), default, dtype=torch.float64, device="cpu"))
        found: Interval = values if isinstance(values, Interval) else Interval.point(values)
        return found.map(self.along)

    def near(self, call: Call) -> Local:
        """It near a point, and of its weight and bias, where these move, too."""
        x, shape, view = point_of(call), call.x.low.shape, self.view
        c, radius = x.center.reshape(view), x.radius.reshape(view)
        centred, moved = c - _mean(c), radius + _mean(radius)
        deviation, most = (_mean(centred.square()) + self.eps).sqrt(), _mean(radius.square()).sqrt()
        y, least = centred / deviation, deviation - most * OUTWARD
        if not bool((least > deviation / 2).all()):
            raise UnboundedError("its deviation may vanish")
        rest = (moved * most + 2 * ((centred.abs() + moved) / least) * most.square()) / least.square()
        weight, bias = (
            torch.full((), default, dtype=torch.float64, device="cpu") if one is None else self.along(number(one))
            for one, default in ((self.weight, 1.0), (self.bias, 0.0))
        )

        def norm(t: Tensor, sign: int, y: Tensor) -> Tensor:
            t = t.reshape(view)
            e = t + sign * _mean(t)
            return ((e + sign * like(y, t) * _mean(like(y, t) * e)) / like(deviation, t)).reshape(shape)

        def run(ts: Sequence[Tensor], sign: int, y: Tensor, weight: Tensor) -> Tensor:
            given = iter(ts)
            first = next(given)
            found = norm(first, sign, y) * like(weight, first)
            if isinstance(self.weight, Point):
                found = found + like(y, first).reshape(shape) * self.along(next(given))
            return found + self.along(next(given)) if isinstance(self.bias, Point) else found

        left = rest.reshape(shape)
        rest = left * weight.abs()
        if isinstance(self.weight, Point):
            wide = self.along(self.weight.radius)
            rest = rest + wide * (norm(x.radius, 1, y.abs()) + left)
        return Local.weighted(
            y.reshape(shape) * weight + bias,
            lambda *ts: run(ts, -1, y, weight),
            lambda *ts: run(ts, 1, y.abs(), weight.abs()),
            rest * OUTWARD,
            2 * c.shape[-1] + 10,
        )

    def _normalised(self, x: Interval, arithmetic: Arithmetic, terms: int) -> tuple[Interval, Tensor, Tensor, Tensor]:
        """Bounds on (x - mean) / sqrt(variance + eps) along the last dimension, and what it loses to rounding.

        Returns:
            The bounds, what rounding is relative to, what is lost where numbers are taken for 0, and the largest
            1 / sqrt(variance + eps).
        """
        count = x.low.shape[-1]
        spread = (x.largest + _mean(x.largest)) * OUTWARD
        low, high = _centred(x)
        squares = torch.stack([low.square(), high.square()])
        least = torch.where((low <= 0) & (high >= 0), 0.0, squares.amin(0))
        variance_low, variance_high = _mean(least) / OUTWARD + self.eps, _mean(squares.amax(0)) * OUTWARD + self.eps
        relative = gamma(terms, unit_roundoff(arithmetic.computed))
        square = _mean(x.largest.square()) * OUTWARD
        if not bool((variance_low >= 2 * arithmetic.smallest).all()):
            raise UnboundedError("its variance and eps may vanish")
        inverse = variance_low.rsqrt() * OUTWARD
        root = square.sqrt() * OUTWARD * inverse  # at least the root mean square in units of the deviation
        share_lost = 2 * root + root.square() * relative if self.is_centred else 2 * root.square()
        stored = arithmetic.step if arithmetic.is_narrow else 0.0  # of a variance and of its sum with eps, a half each
        vanished = (5 * arithmetic.smallest * count + stored) / variance_low
        if not bool((share_lost * relative + vanished <= _MOST).all()):
            raise UnboundedError("rounding may be as large as its variance")
        if float(square.max()) * count * 2 >= torch.finfo(arithmetic.computed).max:
            raise UnboundedError("squares may exceed the largest number of its dtype")
        most = math.sqrt(count) * OUTWARD
        slowest = variance_high.rsqrt() / OUTWARD
        y_low = torch.minimum(low * inverse, low * slowest).clamp(min=-most)
        y_high = torch.maximum(high * inverse, high * slowest).clamp(max=most)
        size = torch.maximum(y_low.abs(), y_high.abs())
        moved = ((1 - 1 / count) * x.error + _mean(x.error)) * OUTWARD
        error = inverse * (moved + size * _mean(size * moved)) * OUTWARD
        step = arithmetic.smallest + (arithmetic.step if arithmetic.is_narrow else 0.0)  # of a mean, a root, a result
        lost = size * vanished + 8 * step * (1 + inverse + spread)
        scale = spread * inverse + size * share_lost
        return Interval(y_low, y_high, error), scale, lost, inverse.expand_as(scale)


def norm(call: Call) -> Norm:
    """Layer norm, group norm, or instance and batch norm by an image's own statistics.

    Raises:
        UnboundedError: Instance norm has statistics of its own, or batch norm takes them from several images.
    """
    shape, is_layer = call.x.low.shape, call.name == "layer_norm"
    if call.name == "instance_norm" and (call["running_mean"] is not None or not call["use_input_stats"]):
        raise UnboundedError("no bound is known for instance norm with statistics of its own")
    if "batch_norm" in call.name and (shape[0] != 1 or call.arguments.get("running_mean") is not None):
        raise UnboundedError("batch norm takes its statistics from the batch")
    view = (shape[0], call["num_groups"] if call.name == "group_norm" else shape[1], -1)
    if is_layer:
        view = (*shape[: -len(call["normalized_shape"])], -1)

    def spread(values: Tensor) -> Tensor:
        return values if is_layer else along(values, len(shape))

    return Norm(view, call.held("weight"), call.held("bias"), spread, float(call["eps"]), is_layer)


@dataclass(frozen=True)
class Spread:
    """The root mean square of values, or their variance or deviation: a 2-norm, whose square is a sum of squares.

    The norm of e has the slope e / |e| and, along a line in the direction d, second derivatives of at most
    |d|^2 / |e|; its square leaves |d|^2 (claim ``chords``). Its sum of squares rounds as any other. A variance may be
    Welford's, whose rounding is relative to 2 s rms(x) + gamma mean x^2; its root moves by less than that over s.

    Attributes:
        dims: Along which values lie.
        divisor: Of the sum of squares.
        is_centred: Whether the squares are of differences from the mean.
        is_root: Whether a root is taken.
    """

    dims: tuple[int, ...]
    divisor: float
    is_centred: bool
    is_root: bool

    def _laid(self, t: Tensor) -> Tensor:
        """Values along the last dimension."""
        return t.movedim(self.dims, tuple(range(-len(self.dims), 0))).flatten(-len(self.dims)) if self.dims else t[None]

    def bounds(self, call: Call) -> Exact:
        """Bounds on its result.

        Raises:
            UnboundedError: Rounding may eat up a deviation.
        """
        x, arithmetic, shape = call.x.map(self._laid), call.arithmetic, call.shape
        count, low, high, moved = x.low.shape[-1], x.low, x.high, x.error
        if self.is_centred:
            low, high = _centred(x)
            moved = x.error + _mean(x.error)
        squares = torch.stack([low.square(), high.square()])
        least = torch.where((low <= 0) & (high >= 0), 0.0, squares.amin(0)).sum(-1) / OUTWARD
        most, size = squares.amax(0).sum(-1) * OUTWARD, torch.maximum(low.abs(), high.abs())
        factor, relative = 1 / self.divisor, gamma(call.terms, unit_roundoff(arithmetic.computed))
        mean_square = x.largest.square().mean(-1) * OUTWARD
        lost = 8 * arithmetic.smallest * count * (1 + mean_square.sqrt())
        scale, reach = most, torch.maximum(most, mean_square * count) * OUTWARD
        if self.is_centred:
            scale = scale + count * (2 * (most / count * mean_square).sqrt() + relative * mean_square)
        if not self.is_root:
            error = 2 * (size * moved).sum(-1) * factor * OUTWARD
            ends = Interval(least * factor, most * factor, error).map(lambda one: one.view(shape))
            return Exact(ends, (scale * factor * OUTWARD).view(shape), lost.view(shape) * factor, reach.view(shape))
        if self.is_centred and not bool((relative * scale + lost <= _MOST * least).all()):
            raise UnboundedError("rounding may be as large as its variance")
        root = factor**0.5
        if self.is_centred:
            scale, lost = scale / least.sqrt(), lost / least.sqrt()
        else:
            scale, lost = scale.sqrt(), torch.minimum(lost.sqrt(), lost / least.sqrt())
        error = moved.square().sum(-1).sqrt() * root * OUTWARD
        ends = Interval(least.sqrt() * root / OUTWARD, most.sqrt() * root * OUTWARD, error)
        scale, lost = ((one * root * OUTWARD).view(shape) for one in (scale, lost))
        return Exact(ends.map(lambda one: one.view(shape)), scale, lost, reach.view(shape))

    def near(self, call: Call) -> Local:
        """It near a point.

        Raises:
            UnboundedError: What a root is taken of may vanish.
        """
        x = point_of(call)
        c, radius = self._laid(x.center), self._laid(x.radius)
        if self.is_centred:
            c, radius = c - _mean(c), radius + _mean(radius)
        square, left = c.square().sum(-1, keepdim=True), radius.square().sum(-1, keepdim=True)
        value, slope, rest = square / self.divisor, 2 * c / self.divisor, left / self.divisor
        if self.is_root:
            size, root = square.sqrt(), self.divisor**-0.5
            least = size - left.sqrt() * OUTWARD
            if not bool((least > size / 2).all()):
                raise UnboundedError("its deviation may vanish")
            value, slope, rest = size * root, c / size * root, left / (2 * least) * root

        def run(t: Tensor, sign: int, slope: Tensor) -> Tensor:
            t = self._laid(t)
            e = t + sign * _mean(t) if self.is_centred else t
            return (like(slope, t) * e).sum(-1).view(call.shape)

        return Local.weighted(
            value.view(call.shape),
            lambda t: run(t, -1, slope),
            lambda t: run(t, 1, slope.abs()),
            rest.view(call.shape) * OUTWARD,
            2 * c.shape[-1] + 10,
        )


def spread(call: Call) -> Spread:
    """A 2-norm, a variance or a standard deviation.

    Raises:
        UnboundedError: It is another norm, or has a dtype of its own.
    """
    shape, given = call.x.low.shape, call.arguments.get("dim")
    chosen = [given] if isinstance(given, int) else given
    dims = tuple(one % len(shape) for one in (chosen or range(len(shape))))
    count = math.prod(shape[one] for one in dims)
    if call.name == "linalg_vector_norm":
        if call["ord"] != 2 or call["dtype"] is not None:
            raise UnboundedError("no bound is known for another norm than that of 2, or one with a dtype of its own")
        return Spread(dims, 1.0, False, True)
    correction = call.arguments.get("correction", int(call.arguments.get("unbiased", True)))
    divisor = count - (1 if correction is None else correction)
    if not divisor > 0:
        raise UnboundedError("a variance of no values, or of one, is not a number")
    return Spread(dims, float(divisor), True, call.name == "std")


def variance_and_mean(call: Call) -> list[Interval]:
    """Bounds on a variance and a mean."""
    found = (spread(call).bounds(call), _of_mean(call))
    return [one.rounded(call.arithmetic, call.terms, same=call.is_same) for one in found]


def near_variance_and_mean(call: Call) -> list[Local]:
    """A variance and a mean near a point."""
    run = _mean_of(call)
    return [spread(call).near(call), Local.weighted(run(point_of(call).center), run, run, terms=_laid_count(call) + 2)]


def _of_mean(call: Call) -> Exact:
    exact, scale = linear_map(call.x, _mean_of(call), _mean_of(call))
    return Exact(exact, scale, reach=scale * _laid_count(call))


def _mean_of(call: Call) -> Map:
    described = spread(call)
    return lambda t: described._laid(t).mean(-1).view(call.shape)


def _laid_count(call: Call) -> int:
    return math.prod(call.x.low.shape[one] for one in spread(call).dims)


def _mean(values: Tensor) -> Tensor:
    return values.mean(-1, keepdim=True)


def _centred(x: Interval) -> tuple[Tensor, Tensor]:
    """Ends of differences from the mean along the last dimension."""
    count = x.low.shape[-1]
    share = 1 - 1 / count  # x_i counts in its own mean
    outward = (x.largest + _mean(x.largest)) * (OUTWARD * (OUTWARD - 1))
    return share * x.low - _mean(x.high) + x.high / count - outward, (
        share * x.high - _mean(x.low) + x.low / count + outward
    )


def softmax(call: Call) -> Exact:
    """Softmax along a dimension.

    Raises:
        UnboundedError: It has a dtype of its own.
    """
    if call.arguments.get("dtype") not in (None, call.arithmetic.dtype):
        raise UnboundedError("no bound is known for softmax with a dtype of its own")
    return Exact(*probabilities(call.x, call["dim"], call.arithmetic))


def shared(call: Call) -> Local:
    """Softmax near a point."""
    x, dim = point_of(call), call["dim"]
    p = x.center.softmax(dim)

    def run(t: Tensor, sign: int) -> Tensor:
        return like(p, t) * (t + sign * (like(p, t) * t).sum(dim, keepdim=True))

    rest = _softmax_rest(p, x.radius, dim)
    return Local.weighted(p, lambda t: run(t, -1), lambda t: run(t, 1), rest, p.shape[dim] + 3)


def _softmax_rest(p: Tensor, radius: Tensor, dim: int) -> Tensor:
    most = radius.amax(dim, keepdim=True)
    return 2 * most.square() * (2 * most).exp() * p * OUTWARD


def probabilities(x: Interval, dim: int, arithmetic: Arithmetic) -> tuple[Interval, Tensor]:
    """Bounds on exact softmax, and what its rounding is relative to."""
    low, high = x.low - x.high.amax(dim, keepdim=True), x.high - x.high.amax(dim, keepdim=True)
    spread = -low.amin(dim, keepdim=True)
    exponent = 3 * unit_roundoff(arithmetic.dtype) * spread.clamp(min=1)  # effect of the scores' rounding on a share

    exps, unseen = (low.exp(), high.exp()), 4 * x.low.shape[dim] * U64  # rounding of a sum less one of its terms

    def share(own: Tensor, others: Tensor, sign: int) -> Tensor:
        total = others.sum(dim, keepdim=True)
        return own / (own + (total * (1 + sign * unseen) - others).clamp(min=0))

    smallest = share(exps[0], exps[1], 1) / OUTWARD
    largest = (share(exps[1], exps[0], -1) * OUTWARD).clamp(max=1)
    moved = (largest * x.error).sum(dim, keepdim=True) * OUTWARD
    error = largest * ((1 - smallest) * x.error + moved - largest * x.error) * OUTWARD
    return Interval(smallest, largest, error), largest * (1 + spread * exponent.expm1() / exponent)


def attend(call: Call) -> Interval:
    """softmax(Q K^T s) V, whose steps may each be rounded, and whose sums may be rescaled after each block of keys.

    Raises:
        UnboundedError: It has a mask, drops keys, or shares heads.
    """
    odd = [call.arguments.get(name) for name in ("is_causal", "enable_gqa", "dropout_p")]
    if call.arguments.get("attn_mask") is not None or any(odd):
        raise UnboundedError("no bound is known for attention that has a mask, drops keys or shares heads")
    query, key, value = (call.operand(call[name]) for name in ("query", "key", "value"))
    arithmetic, same, (depth, keys) = call.arithmetic, call.is_same, (query.low.shape[-1], key.low.shape[-2])
    smallest, given = arithmetic.smallest, call.arguments.get("scale")
    factor = 1 / math.sqrt(depth) if given is None else float(given)
    scores, scale, lost = product(query, key.map(lambda bound: bound.transpose(-1, -2)).map(torch.Tensor.contiguous))
    size = abs(factor) * OUTWARD
    signed = (scores if factor >= 0 else -scores).map(lambda bound: bound * abs(factor))
    outward = scale * size * (OUTWARD - 1)
    signed = Interval(signed.low - outward, signed.high + outward, signed.error * OUTWARD)
    lost = 8 * smallest * lost * max(1.0, size)
    rows = arithmetic.rounded(signed, scale * size, depth + 8, same=same, narrowings=4, lost=lost)
    shares, weight = probabilities(rows, -1, arithmetic)
    terms = keys + (keys // _BLOCK + 2) * (2 * EXP_ULPS + 2)
    shares = arithmetic.rounded(shares, weight, terms, same=same, narrowings=3)
    read, scale, lost = product(shares, value)
    return arithmetic.rounded(read, scale, terms + keys, same=same, narrowings=3, lost=4 * smallest * lost)


def attended(call: Call) -> Local:
    """softmax(Q K^T s) V near a point."""
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
