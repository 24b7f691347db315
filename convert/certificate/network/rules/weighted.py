"""Linear maps: convolutions left alone, linear layers, averages, interpolation, batch norm, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ....bounds.rounding import OUTWARD, unit_roundoff
from ....bounds.subnormal import is_subnormal, magnitudes
from .call import Call
from .interval import Interval, UnboundedError, linear_map
from .roundings import rounded

Apply = Callable[[Tensor, Tensor], Tensor]


def convolution(call: Call) -> Interval:
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
    return rounded(call, exact, scale, lost=2 * lost)


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
    return rounded(call, exact, scale, lost=2 * call.arithmetic.smallest * lost)
