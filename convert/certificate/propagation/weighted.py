"""What maps with weights make of bounds: convolutions left alone, linear layers, batch normalisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...bounds.subnormal import is_subnormal, magnitudes
from .call import Call
from .interval import Interval, UnboundedError, affine
from .tracked import Tracked

_NORM_ROUNDINGS = 8  # the square root, the quotient, the products and the sums of a normalisation, in any form
_NORM_NARROWINGS = 7  # the same, each rounded to half precision where memory is not contiguous


def convolution(call: Call) -> Interval:
    """A convolution along any number of axes, with its own zero padding."""
    x, weight, bias = call.first, call.values(1, "weight"), call.optional_values(2, "bias")
    padding, groups = call.argument(4, "padding", 0), call.argument(6, "groups", 1)
    call.ignore("stride", "dilation")
    padded = isinstance(padding, str) or any(padding if isinstance(padding, tuple | list) else [padding])
    inputs = _channels(x, weight)
    return _mapped(call, inputs.with_zero() if padded else inputs, weight.flatten(2), bias, groups)


def transposed_convolution(call: Call) -> Interval:
    """A transposed convolution along any number of axes, of whose products some are with stuffed zeros.

    Each tap may be rounded to half precision by itself (``bounds/rounding.py``).
    """
    x, weight, bias = call.first, call.values(1, "weight"), call.optional_values(2, "bias")
    groups = call.argument(6, "groups", 1)
    call.ignore("stride", "padding", "output_padding", "dilation")
    kernel = weight.flatten(2).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    taps = math.prod(weight.shape[2:])
    return _mapped(call, _channels(x, weight).with_zero(), kernel, bias, groups, narrowings=taps + 2)


def _channels(x: Tracked, weight: Tensor) -> Interval:
    """Bounds on each channel of the images that are convolved."""
    if x.fake.ndim != weight.ndim:
        raise UnboundedError("only a batch of images is convolved with a bound")
    return x.interval.expanded(x.fake.shape[1])


def linear(call: Call) -> Interval:
    """A linear layer, on its input's last dimension.

    Where memory is not contiguous, the products' sum is rounded to half precision before the bias is added.
    """
    x, weight, bias = call.first, call.values(1, "weight"), call.optional_values(2, "bias")
    has_columns = x.fake.ndim == 2
    inputs = (x.interval if has_columns else x.interval.merged()).expanded(weight.shape[1])
    output = _mapped(call, inputs, weight.unsqueeze(-1), bias, 1, narrowings=1 if bias is None else 2)
    return output if has_columns else output.merged()


def _mapped(
    call: Call, x: Interval, weight: Tensor, bias: Tensor | None, groups: int, *, narrowings: int = 1
) -> Interval:
    """A sum of products, of which subnormal weights may be taken for 0."""
    exact, scale = affine(x, weight, bias, groups=groups)
    smallest = call.arithmetic.smallest
    small = is_subnormal(weight).double().cpu() * smallest
    flushed = affine(x, small, None, groups=groups)[1]
    lost = flushed + smallest * magnitudes(weight).sum((1, 2))
    terms, same = math.prod(weight.shape[1:]) + 1, x.is_equal
    return call.arithmetic.rounded(exact, scale, terms, same=same, lost=2 * lost, narrowings=narrowings)


def batch_norm(call: Call) -> Interval:
    """Batch normalisation with the statistics that it has, as ``torch.nn.functional`` passes it on.

    In half precision, every step may be rounded to it: torch does so on a CPU where memory is not contiguous, and in
    what order is known of no other device. Then a radicand r that is subnormal errs by the smallest number d, and
    1 / sqrt(r) by d / r of itself; of a normalised value that is subnormal, d is lost before the weight multiplies it.
    """
    if len(call.args) != 3:  # as for ``torch.batch_norm``, whose weight stands where the mean does here
        raise UnboundedError("the order of its arguments is not that of torch.nn.functional")
    call.ignore("momentum")
    if call.option("training"):
        raise UnboundedError("batch norm takes its statistics from the batch")
    x, mean, variance = call.first, call.values(1, "running_mean"), call.values(2, "running_var")
    mean, variance, ones = mean.double().cpu(), variance.double().cpu(), torch.ones(len(mean)).double().cpu()
    given, shift = call.named_values("weight"), call.named_values("bias")
    weight = ones if given is None else given.double().cpu()
    bias = torch.zeros_like(ones) if shift is None else shift.double().cpu()
    smallest, radicand = call.arithmetic.smallest, variance + call.option("eps")
    if not bool((radicand >= 2 * smallest).all()):
        raise UnboundedError(f"its variance and eps may vanish in {call.arithmetic.computed}")
    inverse = 1 / radicand.sqrt()
    inputs, factor = x.interval.expanded(x.fake.shape[1]), weight * inverse
    exact, _ = affine(inputs, factor.view(-1, 1, 1), bias - mean * factor, groups=len(mean))
    reach = inputs.largest + mean.abs()
    lost = smallest * 8 * (1 + factor.abs() + (1 + inverse) * (1 + reach))
    lost = lost + factor.abs() * reach * smallest / radicand  # one of the variance and eps may be taken for 0
    if call.arithmetic.computed != call.arithmetic.dtype:
        limits = torch.finfo(call.arithmetic.dtype)
        step = limits.smallest_normal * limits.eps
        if not bool((radicand >= 2 * step).all()):
            raise UnboundedError(f"its variance and eps may vanish in {call.arithmetic.dtype}")
        lost = lost + factor.abs() * reach * step / radicand + weight.abs() * step
    steepest = torch.maximum(factor.abs(), torch.maximum(weight.abs(), inverse))  # in whatever order it multiplies
    return call.arithmetic.rounded(
        exact,
        factor.abs() * reach + bias.abs(),
        _NORM_ROUNDINGS,
        same=inputs.is_equal,
        lost=lost,
        reach=steepest * reach + bias.abs(),
        narrowings=_NORM_NARROWINGS,
    )
