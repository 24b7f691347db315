r"""Linear maps: sums of products with weights, averages, interpolation, batch norm, and products of matrices.

A convolution, a linear layer and an attention layer's convolution are one thing, ``Weighted``: a sum of products and a
bias. The rules are derived in ``proofs/claims/certificate/propagation.py``; a product of two matrices that both depend
on the image leaves dx dy of its linear map (claim ``chords``, ``proofs/claims/certificate/ranges.py``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ...bounds.rounding import OUTWARD, unit_roundoff
from ...bounds.underflow import is_subnormal, magnitudes
from .call import Call
from .interval import BLOCK, Arithmetic, Interval, Products, UnboundedError, linear_map
from .operation import Exact, Local, Map, Point, along, like, number, point_of, points_in, sized

Apply = Callable[[Tensor, Tensor], Tensor]


def _as_it_is(bias: Tensor) -> Tensor:
    return bias


@dataclass(frozen=True)
class Weighted:
    """Sums of products of values with weights, and a bias. What the network computes itself has bounds.

    Attributes:
        apply: From values and weights, both in any precision, to the sums.
        weight: [out, in, *taps], or transposed, as the network holds it.
        bias: [out], or None.
        own: The sums of our own run, of values and double weights.
        blocks: Roundings of a term in ``own``.
        terms: Products of a sum, and its bias.
        along: From the bias to the shape in which it is added.
    """

    apply: Apply
    weight: Tensor | Interval
    bias: Tensor | Interval | None
    own: Apply
    blocks: int
    terms: int
    along: Map = _as_it_is

    def bounds(self, call: Call) -> Exact:
        """Bounds on the sums."""
        return self.exact(call.operand(next(iter(call.arguments.values()))), call.arithmetic, call.terms)

    def exact(self, x: Interval, arithmetic: Arithmetic, terms: int) -> Exact:
        """Bounds on the sums, of which subnormal weights may be taken for 0.

        Args:
            x: Bounds on the values.
            arithmetic: The rounding.
            terms: Roundings of a term.
        """
        weight, smallest = self.weight, arithmetic.smallest
        if isinstance(weight, Interval):
            absolute, small = weight.largest, torch.ones_like(weight.low)
            sums, scale = bilinear_map(self.apply, x, weight)
        else:
            doubled, absolute, small = weight.double(), magnitudes(weight), is_subnormal(weight).double()
            sums, scale = linear_map(x, lambda t: self.apply(t, doubled), lambda t: self.apply(t, absolute))
        bias = self.bias
        if bias is not None:
            bias = bias.map(self.along) if isinstance(bias, Interval) else self.along(bias.detach().cpu().double())
        found = Exact(sums, scale).shifted(bias)
        lost = (
            smallest
            * float(absolute.flatten(1).sum(1).max())
            * len(absolute)
            * torch.ones((), dtype=torch.float64, device="cpu")
        )
        if bool(small.any()):
            lost = lost + self.apply(x.largest, small * smallest)
        products = None if arithmetic.hypothesis is None else self._products(x, arithmetic, terms)
        return Exact(found.bounds, found.scale, 2 * lost, products=products)

    def near(self, call: Call) -> Local:
        """The sums near a point."""
        return self.local(next(iter(call.arguments.values())))

    def local(self, x: Tensor | Point) -> Local:
        """The sums near a point: products of what moves on both sides are left."""
        center, weight, terms = number(x), number(self.weight), 2 * self.terms + 1
        value, points = self.own(center, weight), points_in((x, self.weight, self.bias))
        places = [place for place, one in enumerate((x, self.weight, self.bias)) if isinstance(one, Point)]

        # What the maps keep is kept as long as all steps are: the weights as they are held, not in double precision.
        values = center if 1 in places else None
        weights = self.weight.detach() if isinstance(self.weight, Tensor) else weight

        def run(ts: Sequence[Tensor], size: Callable[[Tensor], Tensor]) -> Tensor:
            maps = (
                lambda t: self.apply(t, size(like(weights, t))),
                lambda t: self.apply(size(like(cast(Tensor, values), t)), t),
                self.along,
            )
            return functools.reduce(torch.add, (maps[place](t) for place, t in zip(places, ts, strict=True)))

        rest = self.apply(points[0].radius, points[1].radius) * OUTWARD if places[:2] == [0, 1] else None
        return Local.weighted(
            value if self.bias is None else value + self.along(number(self.bias)),
            lambda *ts: run(ts, lambda one: one),
            lambda *ts: run(ts, torch.abs),
            rest,
            self.terms if places == [0] else terms,
        )

    def _products(self, x: Interval, arithmetic: Arithmetic, terms: int) -> Products:
        """Rounding of the sums under a hypothesis: a product with 0, as of padding, rounds nothing."""
        counted: Tensor | int = terms - (self.bias is None)
        if arithmetic.hypothesis == "any order":
            present = (x.low != 0) | (x.high != 0)
            if not bool(present.all()):
                held = (sized(self.weight) != 0).double()
                counted = self.apply(present.double(), held).round() + (self.bias is not None)
        return Products(counted, self.blocks)


def bilinear_map(apply: Apply, a: Interval, b: Interval) -> tuple[Interval, Tensor]:
    """Bounds on the exact result of a map that is linear in each of two tensors, and on the sums of its terms.

    With middles m and radii r, a b is within |m_a| r_b + r_a (|m_b| + r_b) of m_a m_b; and
    |a b - a' b'| <= |a| |b - b'| + |a - a'| |b'|.
    """
    middles = [(x.low + x.high) / 2 for x in (a, b)]
    radii = [(x.high - x.low) / 2 for x in (a, b)]
    scale = apply(a.largest, b.largest) * OUTWARD
    radius = apply(middles[0].abs(), radii[1]) + apply(radii[0], middles[1].abs() + radii[1]) + scale * (OUTWARD - 1)
    middle = apply(*middles)
    error = (apply(a.largest, b.error) + apply(a.error, b.largest)) * OUTWARD
    return Interval(middle - radius, middle + radius, error), scale


def in_blocks(apply: Callable[[slice], Tensor], channels: int, taps: int = 1) -> Tensor:
    """A sum over channels, of blocks of about ``BLOCK`` products: our own run's, whose rounding that makes smaller."""
    step = max(1, BLOCK // taps)
    return functools.reduce(torch.add, (apply(slice(first, first + step)) for first in range(0, channels, step)))


def block_roundings(channels: int, taps: int) -> int:
    """Roundings of a term of ``in_blocks`` and of a bias."""
    step = max(1, BLOCK // taps)
    return taps * min(step, channels) + -(-channels // step) + 1


def convolution(call: Call) -> Weighted:
    """A convolution along any number of axes, as the operation itself is called, transposed or not."""
    weight, bias = weights(call)
    shape = weight_shape(call)
    fixed = {name: value for name, value in call.arguments.items() if name not in ("input", "weight", "bias")}
    function: Any = getattr(F, call.name)
    is_transposed, taps = "transpose" in call.name, math.prod(shape[2:])
    inner = shape[0] if is_transposed else shape[1] * fixed["groups"]
    terms = taps * (shape[0] if is_transposed else shape[1])

    def apply(t: Tensor, weight: Tensor) -> Tensor:
        found: Tensor = function(t, weight, None, **fixed)
        return found

    def own(t: Tensor, weight: Tensor) -> Tensor:
        channels = t.ndim - len(shape) + 1
        return in_blocks(
            lambda part: apply(t[:, part] if channels else t[part], weight[part] if is_transposed else weight[:, part]),
            inner,
            taps,
        )

    axes = len(shape) if len(call.shape) == len(shape) else len(shape) - 1

    def shaped(bias: Tensor) -> Tensor:
        return along(bias, axes, axes - len(shape) + 1)

    if fixed["groups"] != 1:
        return Weighted(apply, weight, bias, apply, call.terms, terms, shaped)
    return Weighted(apply, weight, bias, own, block_roundings(inner, taps), terms, shaped)


def linear(call: Call) -> Weighted:
    """A linear layer, on its input's last dimension."""
    weight, bias = weights(call)
    inner = weight_shape(call)[-1]

    def own(t: Tensor, weight: Tensor) -> Tensor:
        return in_blocks(lambda part: F.linear(t[..., part], weight[:, part]), inner)

    return Weighted(F.linear, weight, bias, own, block_roundings(inner, 1), inner)


def weights(call: Call) -> tuple[Any, Any]:
    """The weights and the bias of a sum of products, or bounds on them where the network computes them.

    Raises:
        UnboundedError: There are none.
    """
    if call["weight"] is None:
        raise UnboundedError("it has no weight")
    return call.held("weight"), call.held("bias")


def weight_shape(call: Call) -> torch.Size:
    """The shape of the weights."""
    weight = weights(call)[0]
    return weight.low.shape if isinstance(weight, Interval) else weight.shape


def average(call: Call) -> Exact:
    """Averages and sums: the operation itself on every bound.

    Raises:
        UnboundedError: A divisor is given, or there is nothing to average.
    """
    if call.arguments.get("divisor_override") is not None or call.arguments.get("dtype") is not None:
        raise UnboundedError(f"no bound is known for {call.name} with a divisor or a dtype of its own")
    if call.x.low.numel() == 0:
        raise UnboundedError("an average of no values is not a number")
    exact, scale = linear_map(call.x, call.run, call.run)
    return Exact(exact, scale, reach=scale * max(1, call.x.low.numel()))


def averaged(call: Call) -> Local:
    """Averages, sums, interpolation: maps without negative weights."""
    x = point_of(call)
    return Local.weighted(call.run(x.center), call.run, call.run, terms=64 + x.center.numel())


def interpolate(call: Call) -> Exact:
    """Linear interpolation between pixels: the operation itself on every bound, at places that are rounded, too.

    Output i of an axis of n pixels reads at the place p = s (i + 1/2) - 1/2, or s i with aligned corners. With p
    between pixels j and j + 1 they have the weights 1 - w and w, w = p - j. Scale, product and difference round, and
    s (i + 1/2) <= n, so the computed place is off by at most 3 n u + O(u^2) <= 4 n u. The interpolant is continuous in
    p and linear between pixels: it moves by at most 4 n u times the largest |x_k - x_{k+1}| near p, k from j - 1 to
    j + 1, even where p passes a pixel. In half precision w is stored, so both weights are off by v more. With
    M = max |x_k| of the pixels k from j - 1 to j + 2, an axis adds at most

        (8 n u + v) M,        and two axes  ((1 + 8 n u + v) (1 + 8 m u + v) - 1) M,

    where a weight is 0 as well. M is bounded by interpolating the largest of five pixels around each.
    """
    exact, scale = linear_map(call.x, call.run, call.run)
    pool: Any = (F.max_pool1d, F.max_pool2d)[call.x.low.ndim - 3]
    around: Tensor = call.run(pool(call.x.largest, 5, stride=1, padding=2))
    arithmetic, wrong = call.arithmetic, 1.0
    for pixels in call.x.low.shape[2:]:
        stored = unit_roundoff(arithmetic.dtype) if arithmetic.is_narrow else 0.0
        wrong *= 1 + 8 * pixels * unit_roundoff(arithmetic.computed) + stored
    astray = around * (wrong - 1) * OUTWARD
    return Exact(exact, scale, astray, scale + astray)


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation with the statistics that it has, each number in the shape that values are multiplied with."""

    mean: Tensor
    radicand: Tensor
    weight: Tensor
    bias: Tensor

    @property
    def factor(self) -> Tensor:
        """weight / sqrt(variance + eps)."""
        return self.weight * (1 / self.radicand.sqrt())

    def bounds(self, call: Call) -> Exact:
        """Bounds on its result.

        In half precision a radicand r that is subnormal errs by the smallest number d, and 1 / sqrt(r) by d / r of
        itself; of a normalised value that is subnormal, d is lost before the weight multiplies it.

        Raises:
            UnboundedError: Its variance and eps may vanish.
        """
        x, arithmetic, center, radicand = call.x, call.arithmetic, self.mean, self.radicand
        smallest, step = arithmetic.smallest, arithmetic.step if arithmetic.is_narrow else 0.0
        if not bool((radicand >= 2 * max(smallest, step)).all()):
            raise UnboundedError(f"its variance and eps may vanish in {arithmetic.dtype}")
        inverse, factor, reach = 1 / radicand.sqrt(), self.factor, x.largest + center.abs()
        scale = factor.abs() * reach + self.bias.abs()
        exact, _ = linear_map(x, lambda values: values * factor, lambda values: values * factor.abs())
        moved = Exact(exact, 4 * scale).shifted(self.bias - center * factor).bounds
        lost = smallest * 8 * (1 + factor.abs() + (1 + inverse) * (1 + reach))
        lost = lost + factor.abs() * reach * (smallest + step) / radicand  # of the variance and eps, one may be 0
        lost = lost + self.weight.abs() * step
        steepest = torch.maximum(factor.abs(), torch.maximum(self.weight.abs(), inverse))  # in whatever order
        return Exact(moved, scale, lost, steepest * reach + self.bias.abs())

    def near(self, call: Call) -> Local:
        """It near a point."""
        factor, size = self.factor, self.factor.abs()
        value = (point_of(call).center - self.mean) * factor + self.bias
        return Local.weighted(value, lambda t: t * like(factor, t), lambda t: t * like(size, t))


def batch_norm(call: Call) -> BatchNorm:
    """Batch normalisation with the statistics that it has.

    Raises:
        UnboundedError: It has none.
    """
    mean, variance = call.constant("running_mean"), call.constant("running_var")
    if mean is None or variance is None:
        raise UnboundedError("batch norm has no statistics")

    def channels(values: Tensor | None, default: float) -> Tensor:
        filled = torch.full_like(mean, default) if values is None else values
        return along(filled.double(), call.x.low.ndim)

    weight, bias = channels(call.constant("weight"), 1.0), channels(call.constant("bias"), 0.0)
    return BatchNorm(channels(mean, 0.0), channels(variance, 1.0) + call["eps"], weight, bias)


def product(a: Interval, b: Interval) -> tuple[Interval, Tensor, float]:
    """``bilinear_map`` of two matrices, and what subnormal factors lose."""
    found, scale = bilinear_map(torch.matmul, a, b)
    return found, scale, (float(a.largest.max()) + float(b.largest.max())) * a.low.shape[-1]


def matrix_product(call: Call) -> Exact:
    """A product of two matrices, or of batches of them, and with ``addmm`` a matrix added."""
    *added, a, b = map(call.operand, call.matrices)
    exact, scale, lost = product(a, b)
    if added:
        if call["beta"] != 1 or call["alpha"] != 1:
            raise UnboundedError(f"no bound is known for {call.name} with factors")
        (first,) = added
        exact = Interval(exact.low + first.low, exact.high + first.high, exact.error + first.error)
        scale = (scale + first.largest) * OUTWARD
    inner = a.low.shape[-1]
    products = None if added else Products(inner, block_roundings(inner, 1))
    return Exact(exact, scale, 2 * call.arithmetic.smallest * lost, products=products)


def multiplied_matrices(call: Call) -> Local:
    """A product of matrices near a point, and what is added to it."""
    *first, a, b = call.matrices
    inner = number(a).shape[-1]

    def blocked(one: Tensor, other: Tensor) -> Tensor:
        rows = other.unsqueeze(-1) if other.ndim == 1 else other
        found = in_blocks(lambda part: one[..., part] @ rows[..., part, :], inner)
        return found.squeeze(-1) if other.ndim == 1 else found

    found = bilinear([a, b], torch.matmul, blocked, inner)
    if not first:
        return found
    value, absolute = found.value + number(first[0]), found.absolute or found.apply
    if not isinstance(first[0], Point):
        return Local.weighted(value, found.apply, absolute, found.rest, found.terms)

    def plus(apply: Map) -> Map:
        return lambda t, *ts: t + apply(*ts) if ts else t.expand(value.shape)

    return Local.weighted(value, plus(found.apply), plus(absolute), found.rest, found.terms + 1)


def bilinear(factors: Sequence[Any], product: Map, own: Map, terms: int) -> Local:
    """x y near both, which leaves dx dy."""
    numbers = [number(one) for one in factors]
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
