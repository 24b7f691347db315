"""Rules that carry bounds on values and on their difference through each operation of an exported program: ``RULES``.

``call.py`` is one operation, ``interval.py`` the bounds, ``roundings.py`` says how often each operation rounds
(``proofs/claims/certificate/operation_roundings.py``); the rules themselves are derived in
``proofs/claims/certificate/propagation.py``. In the order of this file:

Linear maps: convolutions left alone, linear layers, averages, interpolation, batch norm, matrix products.

Functions of each value by itself, and sums, products and quotients of two tensors. The claim ``activation-slopes``
derives the Lipschitz constants. An activation that is not exact is taken to err by at most ``ACTIVATION_ULPS`` units in
the last place of the larger of 1 and |x|.

Normalisations by statistics of the values themselves, softmax, and attention made of it.

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

Operations that move entries, repeat or leave them out, or take maxima of them: each bound goes where the value goes. A
maximum of values moves by at most the largest error among them. A constant is the same in both programs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...bounds.rounding import EXP_ULPS, OUTWARD, gamma, unit_roundoff
from ...bounds.underflow import is_subnormal, magnitudes
from .call import Call
from .interval import (
    BLOCK,
    CONTRACT,
    Arithmetic,
    Interval,
    Products,
    UnboundedError,
    checked,
    linear_map,
)
from .roundings import ROUNDINGS, rounded

Apply = Callable[[Tensor, Tensor], Tensor]


def convolution_rule(call: Call) -> Interval:
    """A convolution along any number of axes, as the operation itself is called, transposed or not."""
    fixed = {name: value for name, value in call.arguments.items() if name not in ("input", "weight", "bias")}
    function: Any = getattr(F, call.name)
    return _mapped(call, lambda x, weight: function(x, weight, None, **fixed), channels=1)


def linear(call: Call) -> Interval:
    """A linear layer, on its input's last dimension."""
    return _mapped(call, lambda x, weight: F.linear(x, weight), channels=-1)


def _mapped(call: Call, apply: Apply, *, channels: int) -> Interval:
    """A sum of products and a bias, of which subnormal weights may be taken for 0."""
    weight, bias = call.constant("weight"), call.constant("bias")
    if weight is None:
        raise UnboundedError("it has no weight")
    absolute, smallest = magnitudes(weight), call.arithmetic.smallest
    doubled = weight.double()
    exact, scale = linear_map(call.x, lambda x: apply(x, doubled), lambda x: apply(x, absolute))
    if bias is not None:
        exact, scale = _moved(exact, scale, _along(bias.double(), exact.low.ndim, channels))
    lost = smallest * float(absolute.flatten(1).sum(1).max()) * weight.shape[0] * torch.ones(())
    small = is_subnormal(weight)
    if bool(small.any()):
        lost = lost + apply(call.x.largest, small.double() * smallest)
    products = None if call.arithmetic.hypothesis is None else _products(call, apply, weight.double(), bias, exact)
    return rounded(call, exact, scale, lost=2 * lost, products=products)


def _products(call: Call, apply: Apply, weight: Tensor, bias: Tensor | None, exact: Interval) -> Products:
    """What a hypothesis says of the sums: a product with 0, as of padding or behind a rectifier, rounds nothing."""
    terms: Tensor | int = ROUNDINGS[call.name].terms(call) - (bias is None)
    groups, taps = call.arguments.get("groups", 1), 1 if call.name == "linear" else weight[0, 0].numel()
    inner = weight.shape[-1] if call.name == "linear" else call.x.low.shape[1]
    blocks = block_roundings(inner, taps) if groups == 1 else ROUNDINGS[call.name].terms(call)
    name, sharper = call.arithmetic.hypothesis.name, None  # type: ignore[union-attr]
    if name in ("any order", "known order"):
        present = (call.x.low != 0) | (call.x.high != 0)
        if not bool(present.all()):
            terms = apply(present.double(), (weight != 0).double()).round() + (bias is not None)
    unit = unit_roundoff(call.arithmetic.computed)
    if name == "known order" and groups == 1 and _is_pointwise(call, weight):
        sharper = _in_order(call, weight, bias, exact, unit)
    if name == "contract":
        square = apply(call.x.largest.square(), weight.square())
        added = 0.0 if bias is None else _along(bias.double().square(), square.ndim, -1 if call.name == "linear" else 1)
        sharper = CONTRACT * unit * ((square + added).sqrt() + exact.largest) * OUTWARD
    return Products(terms, blocks, sharper)


def _is_pointwise(call: Call, weight: Tensor) -> bool:
    """Whether each output reads one place alone, all of whose channels lie one after the other."""
    if call.name == "linear":
        return call.x.low.ndim == 2
    ones = all(step == 1 for step in call["stride"]) and weight[0, 0].numel() == 1
    return call.name == "conv2d" and ones and call["padding"] in ("valid", [0, 0])


def _in_order(call: Call, weight: Tensor, bias: Tensor | None, exact: Interval, unit: float) -> Tensor:
    """Rounding of fused products that are added channel after channel, in blocks, whose sums are added likewise.

    An addition errs by u times the partial sum that it gives. The partial sums of the range's middle are added up; the
    rest of the range moves each by at most |W| times its radius. The bias comes last.
    """
    x, count = call.x, weight.flatten(1).shape[1]
    middle, radius = (x.low + x.high) / 2, (x.high - x.low) / 2
    columns, matrix = middle[0].flatten(1) if middle.ndim > 2 else middle.T, weight.flatten(1)
    found = columns.new_zeros(len(matrix), columns.shape[1])
    whole = found.clone()
    for first in range(0, count, BLOCK):
        part = slice(first, first + BLOCK)
        for rows in torch.arange(len(matrix)).split(max(1, 2**22 // (BLOCK * columns.shape[1]))):
            sums = (matrix[rows, part, None] * columns[None, part]).cumsum_(1)
            whole[rows] += sums[:, -1]
            found[rows] += sums.abs_().sum(1)
        found += whole.abs()
    shape, absolute = exact.low.shape, matrix.abs()
    flat = radius[0].flatten(1) if middle.ndim > 2 else radius.T
    reach, total = absolute @ flat, absolute @ (columns.abs() + flat)
    found += (min(BLOCK, count) + -(-count // BLOCK) + 1) * reach
    found, total = ((one.T if middle.ndim == 2 else one).reshape(shape) for one in (found, total))
    added = 0.0 if bias is None else _along(bias.double().abs(), len(shape), -1 if middle.ndim == 2 else 1)
    small = gamma(count + 2, unit)
    return (unit * (1 + small) * (found + 2 * (exact.largest + added)) + small**2 * (total + added)) * OUTWARD


def in_blocks(apply: Callable[[slice], Tensor], channels: int, taps: int = 1) -> Tensor:
    """A sum over channels, of blocks of about ``BLOCK`` products: our own run's, whose rounding that makes smaller."""
    step = max(1, BLOCK // taps)
    return functools.reduce(torch.add, (apply(slice(first, first + step)) for first in range(0, channels, step)))


def block_roundings(channels: int, taps: int) -> int:
    """Roundings of a term of ``in_blocks`` and of a bias."""
    step = max(1, BLOCK // taps)
    return taps * min(step, channels) + -(-channels // step) + 1


def _moved(x: Interval, scale: Tensor, shift: Tensor) -> tuple[Interval, Tensor]:
    """Both with a constant added, moved out by what adding it here rounds."""
    outward = (scale + shift.abs()) * (OUTWARD - 1)
    return Interval(x.low + shift - outward, x.high + shift + outward, x.error), (scale + shift.abs()) * OUTWARD


def _along(values: Tensor, axes: int, channels: int) -> Tensor:
    """A number for each channel, in the shape that a tensor of so many dimensions is multiplied with."""
    return values.view(-1, *[1] * (0 if channels < 0 else axes - channels - 1))


def average(call: Call) -> Interval:
    """Averages and sums: the operation itself on every bound.

    Raises:
        UnboundedError: A divisor is given, or there is nothing to average.
    """
    if call.arguments.get("divisor_override") is not None or call.arguments.get("dtype") is not None:
        raise UnboundedError(f"no bound is known for {call.name} with a divisor or a dtype of its own")
    if call.x.low.numel() == 0:
        raise UnboundedError("an average of no values is not a number")
    exact, scale = linear_map(call.x, call.run, call.run)
    return rounded(call, exact, scale, reach=scale * max(1, call.x.low.numel()))


def interpolate(call: Call) -> Interval:
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
    return rounded(call, exact, scale, lost=astray, reach=scale + astray)


def batch_norm(call: Call) -> Any:
    """Batch normalisation with the statistics that it has.

    In half precision a radicand r that is subnormal errs by the smallest number d, and 1 / sqrt(r) by d / r of itself;
    of a normalised value that is subnormal, d is lost before the weight multiplies it.

    Raises:
        UnboundedError: It takes statistics from the batch, or its variance and eps may vanish.
    """
    mean, variance = call.constant("running_mean"), call.constant("running_var")
    if call.arguments.get("training") or mean is None or variance is None:
        raise UnboundedError("batch norm takes its statistics from the batch")
    given, shift = call.constant("weight"), call.constant("bias")
    x, arithmetic = call.x, call.arithmetic

    def channels(values: Tensor | None, default: float) -> Tensor:
        filled = torch.full_like(mean, default) if values is None else values
        return _along(filled.double(), x.low.ndim, 1)

    weight, bias, center = channels(given, 1.0), channels(shift, 0.0), channels(mean, 0.0)
    smallest, radicand = arithmetic.smallest, channels(variance, 1.0) + call["eps"]
    least = 2 * max(smallest, arithmetic.step if arithmetic.is_narrow else 0.0)
    if not bool((radicand >= least).all()):
        raise UnboundedError(f"its variance and eps may vanish in {arithmetic.dtype}")
    inverse = 1 / radicand.sqrt()
    factor, reach = weight * inverse, x.largest + center.abs()
    scale = factor.abs() * reach + bias.abs()
    exact, _ = linear_map(x, lambda values: values * factor, lambda values: values * factor.abs())
    exact, _ = _moved(exact, 4 * scale, bias - center * factor)
    lost = smallest * 8 * (1 + factor.abs() + (1 + inverse) * (1 + reach))
    lost = lost + factor.abs() * reach * smallest / radicand  # one of the variance and eps may be taken for 0
    if arithmetic.is_narrow:
        lost = lost + factor.abs() * reach * arithmetic.step / radicand + weight.abs() * arithmetic.step
    steepest = torch.maximum(factor.abs(), torch.maximum(weight.abs(), inverse))  # in whatever order it multiplies
    found = rounded(call, exact, scale, lost=lost, reach=steepest * reach + bias.abs())
    return found if call.name == "batch_norm" else [found, None, None]


def product(a: Interval, b: Interval) -> tuple[Interval, Tensor, float]:
    """Bounds on the exact product of two matrices, on the sums of its terms, and on what subnormal factors lose.

    With middles m and radii r, a b is within |m_a| r_b + r_a (|m_b| + r_b) of m_a m_b; and
    |a b - a' b'| <= |a| |b - b'| + |a - a'| |b'|.
    """
    middles = [(x.low + x.high) / 2 for x in (a, b)]
    radii = [(x.high - x.low) / 2 for x in (a, b)]
    scale = a.largest @ b.largest * OUTWARD
    radius = middles[0].abs() @ radii[1] + radii[0] @ (middles[1].abs() + radii[1]) + scale * (OUTWARD - 1)
    middle = middles[0] @ middles[1]
    error = (a.largest @ b.error + a.error @ b.largest) * OUTWARD
    lost = (float(a.largest.max()) + float(b.largest.max())) * a.low.shape[-1]
    return Interval(middle - radius, middle + radius, error), scale, lost


def matrix_product(call: Call) -> Interval:
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
    return rounded(call, exact, scale, lost=2 * call.arithmetic.smallest * lost, products=products)


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
        UnboundedError: As ``limits``.
    """
    low, high = limits(call)
    x = call.x
    return checked(Interval(x.low.clamp(low, high), x.high.clamp(low, high), x.error))


_LIMITS = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}


def limits(call: Call) -> tuple[float, float]:
    """The ends that an operation clamps to, as its dtype holds them.

    Raises:
        UnboundedError: They are tensors.
    """
    low, high = _LIMITS.get(call.name, (call.arguments.get("min", -math.inf), call.arguments.get("max", math.inf)))
    if call.name == "hardtanh":
        low, high = call["min_val"], call["max_val"]
    ends = -math.inf if low is None else low, math.inf if high is None else high
    if any(isinstance(end, Tensor | Interval) for end in ends):
        raise UnboundedError("no bound is known for limits that are tensors")
    held = tuple(map(call.arithmetic.held, ends))
    if not (held[0] <= held[1] and held[0] < math.inf and held[1] > -math.inf):
        raise UnboundedError(f"no number of {call.arithmetic.dtype} is between the limits {ends[0]} and {ends[1]}")
    return held[0], held[1]


def absolute_value(call: Call) -> Interval:
    """The absolute value, without rounding."""
    x = call.x
    low = torch.where((x.low <= 0) & (x.high >= 0), 0.0, torch.minimum(x.low.abs(), x.high.abs()))
    return Interval(low, x.largest, x.error)


def leaky(call: Call) -> Interval:
    """max(x, 0) + slope min(x, 0), with a slope for all values or, for PReLU, one for each channel.

    Its steepness is the larger of 1 and |slope|. With a slope below 0 it is not monotone: then it reaches 0 inside.
    """
    x = call.x
    slope = negative_slope(call)
    ends = [torch.where(end > 0, end, slope * end) for end in (x.low, x.high)]
    inside = torch.where((x.low < 0) & (x.high > 0), 0.0, ends[0])
    low, high = (torch.stack([*ends, inside]).amin(0), torch.stack([*ends, inside]).amax(0))
    steepest = slope.abs().clamp(min=1)
    exact, scale = Interval(low, high, x.error * steepest), steepest * x.largest.clamp(min=1)
    return rounded(call, exact, scale)


def negative_slope(call: Call) -> Tensor:
    """The slope below 0, for all values or for each channel."""
    if call.name != "prelu":
        return torch.tensor(float(call["negative_slope"]), dtype=torch.float64)
    weight = call.constant("weight")
    slopes = torch.zeros(()) if weight is None else weight.double()
    return slopes.view(-1, *[1] * (call.x.low.ndim - 2)) if slopes.numel() > 1 else slopes.view(())


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


_MOST = 0.5  # largest share of a variance that rounding may take; beyond, nothing is claimed
_BLOCK = 16  # keys, at least, after which a softmax that is not stored is rescaled


def normalise(call: Call) -> Interval:
    """Layer norm, group norm, or instance norm by each image's own statistics.

    Raises:
        UnboundedError: Instance norm has statistics of its own, or rounding may eat up the variance.
    """
    x, shape, view = call.x, call.x.low.shape, _normalised_view(call)
    weight, bias = (
        _scales(call.constant(name), default, x.low, call.name) for name, default in (("weight", 1.0), ("bias", 0.0))
    )
    flat = x.map(lambda bound: bound.reshape(view))
    exact, scale, lost = _normalised(flat, float(call["eps"]), call)
    exact, scale, lost = exact.map(lambda bound: bound.reshape(shape)), scale.reshape(shape), lost.reshape(shape)
    ends = torch.stack([exact.low * weight, exact.high * weight])
    outer = scale * weight.abs() + bias.abs()
    outward = outer * (OUTWARD - 1)
    moved = Interval(ends.amin(0) + bias - outward, ends.amax(0) + bias + outward, exact.error * weight.abs() * OUTWARD)
    return rounded(call, moved, outer, lost=lost * weight.abs() + 8 * call.arithmetic.smallest)


def _normalised_view(call: Call) -> tuple[int, ...]:
    """The shape in which the values that are normalised together lie along the last dimension.

    Raises:
        UnboundedError: Instance norm has statistics of its own.
    """
    shape = call.x.low.shape
    if call.name == "layer_norm":
        return (*shape[: -len(call["normalized_shape"])], -1)
    if call.name == "instance_norm" and (call["running_mean"] is not None or not call["use_input_stats"]):
        raise UnboundedError("no bound is known for instance norm with statistics of its own")
    return (shape[0], call["num_groups"] if call.name == "group_norm" else shape[1], -1)


def _scales(values: Tensor | None, default: float, like: Tensor, name: str) -> Tensor:
    """A scale or a shift in the shape it is multiplied with."""
    if values is None:
        return torch.full((), default, dtype=torch.float64)
    doubled = values.double()
    return doubled if name == "layer_norm" else doubled.view(-1, *[1] * (like.ndim - 2))


def _normalised(x: Interval, eps: float, call: Call) -> tuple[Interval, Tensor, Tensor]:
    """Bounds on (x - mean) / sqrt(variance + eps) along the last dimension, and what it loses to rounding.

    Returns:
        The bounds, what rounding is relative to, and what is lost where numbers are taken for 0.
    """

    def mean(values: Tensor) -> Tensor:
        return values.mean(-1, keepdim=True)

    count = x.low.shape[-1]
    spread = (x.largest + mean(x.largest)) * OUTWARD
    share = 1 - 1 / count  # x_i counts in its own mean
    low = share * x.low - mean(x.high) + x.high / count
    high = share * x.high - mean(x.low) + x.low / count
    outward = spread * (OUTWARD - 1)
    low, high = low - outward, high + outward
    squares = torch.stack([low.square(), high.square()])
    least = torch.where((low <= 0) & (high >= 0), 0.0, squares.amin(0))
    variance_low, variance_high = mean(least) / OUTWARD + eps, mean(squares.amax(0)) * OUTWARD + eps
    arithmetic = call.arithmetic
    relative = gamma(ROUNDINGS[call.name].terms(call), unit_roundoff(arithmetic.computed))
    square = mean(x.largest.square()) * OUTWARD
    if not bool((variance_low >= 2 * arithmetic.smallest).all()):
        raise UnboundedError("its variance and eps may vanish")
    inverse = variance_low.rsqrt() * OUTWARD
    root = square.sqrt() * OUTWARD * inverse  # at least the root mean square in units of the deviation
    share_lost = 2 * root + root.square() * relative if call.name == "layer_norm" else 2 * root.square()
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
    moved = (share * x.error + mean(x.error)) * OUTWARD
    error = inverse * (moved + size * mean(size * moved)) * OUTWARD
    step = arithmetic.smallest + (arithmetic.step if arithmetic.is_narrow else 0.0)  # of a mean, a root, a result
    lost = size * vanished + 8 * step * (1 + inverse + spread)
    return Interval(y_low, y_high, error), spread * inverse + size * share_lost, lost


def softmax(call: Call) -> Interval:
    """Softmax along a dimension.

    Raises:
        UnboundedError: It has a dtype of its own.
    """
    if call.arguments.get("dtype") not in (None, call.arithmetic.dtype):
        raise UnboundedError("no bound is known for softmax with a dtype of its own")
    exact, scale = probabilities(call.x, call["dim"], call.arithmetic)
    return rounded(call, exact, scale)


def probabilities(x: Interval, dim: int, arithmetic: Arithmetic) -> tuple[Interval, Tensor]:
    """Bounds on exact softmax, and what its rounding is relative to."""
    low, high = x.low - x.high.amax(dim, keepdim=True), x.high - x.high.amax(dim, keepdim=True)
    spread = -low.amin(dim, keepdim=True)
    exponent = 3 * unit_roundoff(arithmetic.dtype) * spread.clamp(min=1)  # effect of the scores' rounding on a share

    exps, unseen = (low.exp(), high.exp()), 4 * x.low.shape[dim] * 2.0**-53  # rounding of a sum less one of its terms

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


MOVES = (
    *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "repeat"),
    *("permute", "transpose", "t", "movedim", "slice", "select", "narrow", "chunk", "split", "split_with_sizes"),
    *("unbind", "flip", "roll", "clone", "contiguous", "alias", "detach", "lift_fresh_copy", "copy", "slice_scatter"),
    *("select_scatter", "index_select", "cat", "stack", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "repeat_interleave", "tile", "unfold"),
    *(f"max_pool{axes}d" for axes in (1, 2, 3)),
    *(f"adaptive_max_pool{axes}d" for axes in (1, 2, 3)),
    "amax",
)
_SHAPED = ("view", "_unsafe_view")  # the memory layout may differ here


def move(call: Call) -> Any:
    """The operation on each of the bounds."""
    if "dtype" in call.arguments and call.name == "view":
        raise UnboundedError("it reads bits as other numbers")
    if call.name in _SHAPED:
        return call.x.map(lambda bound: bound.reshape(call["size"]))
    parts = call.each("low"), call.each("high"), call.each("error")
    if isinstance(parts[0], Tensor):
        return _finite(Interval(*parts))
    return [_finite(Interval(*part)) if part[0].is_floating_point() else None for part in zip(*parts, strict=True)]


def pad(call: Call) -> Interval:
    """The image with pixels around it, of which constants are the same in both programs.

    Raises:
        UnboundedError: The constant is no number of the dtype.
    """
    value = call.arithmetic.held(call.arguments.get("value") or 0.0)
    if not abs(value) < float("inf"):
        raise UnboundedError(f"it pads with {value}, which is no finite number of {call.arithmetic.dtype}")
    mode, pads = call.arguments.get("mode", "constant"), call["pad"]

    def padded(x: Tensor, value: float) -> Tensor:
        return torch.nn.functional.pad(x, pads, mode, value if mode == "constant" else None)

    x = call.x
    return Interval(padded(x.low, value), padded(x.high, value), padded(x.error, 0.0))


def _finite(interval: Interval) -> Interval:
    """Refuses a window of padding alone, whose maximum is minus infinity."""
    try:
        return checked(interval)
    except UnboundedError:
        raise UnboundedError("a window of its maxima sees padding alone, which is minus infinity") from None


_AXES = (1, 2, 3)


def _unchanged(call: Call) -> Interval:
    if call.arguments.get("train", False):
        raise UnboundedError("dropout draws random numbers while it trains")
    return call.x


RULES: dict[str, Callable[[Call], Any]] = {
    **dict.fromkeys(MOVES, move),
    **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), _unchanged),
    **{f"conv{axes}d": convolution_rule for axes in _AXES},
    **{f"conv_transpose{axes}d": convolution_rule for axes in _AXES},
    "linear": linear,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), batch_norm),
    **{f"{kind}avg_pool{axes}d": average for axes in _AXES for kind in ("", "adaptive_")},
    **dict.fromkeys(("mean", "sum"), average),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d"), interpolate),
    **dict.fromkeys(("matmul", "bmm", "mm", "addmm", "baddbmm"), matrix_product),
    **ACTIVATIONS,
    "gelu": gelu,
    "elu": elu,
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"), clamp),
    **dict.fromkeys(("leaky_relu", "prelu"), leaky),
    "abs": absolute_value,
    "glu": glu,
    **dict.fromkeys(("add", "sub", "rsub"), add),
    "mul": multiply,
    "div": divide,
    **dict.fromkeys(("_to_copy", "to"), cast),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), normalise),
    "softmax": softmax,
    "scaled_dot_product_attention": attend,
}


def bound(call: Call) -> Any:
    """Bounds on the result of an operation, or a list of them where it has several.

    Raises:
        UnboundedError: Nothing is known of it.
    """
    rule = RULES.get(call.name)
    if rule is None:
        raise UnboundedError(f"no bound is known for {call.name}")
    return rule(call)
