r"""Normalisations by statistics of the values themselves, softmax, and attention made of it.

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
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....bounds.rounding import EXP_ULPS, OUTWARD, gamma, unit_roundoff
from .call import Call
from .interval import Arithmetic, Interval, UnboundedError
from .roundings import ROUNDINGS, rounded
from .weighted import product

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
