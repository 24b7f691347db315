"""An attention layer's rule: its own certificate at every pixel, and what it inherits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...arguments import Size
from ...bounds.rounding import OUTWARD, gamma, unit_roundoff
from ...bounds.underflow import magnitudes
from ...heads.values import LayerValues
from ...layer.checked import checked_layer
from ...layer.layer import SelfAttention
from ...spec import ConvSpec
from ..data import convolve_padded
from ..layer import padded_range, pixel_errors
from .interval import CONTRACT, U64, Arithmetic, Hypothesis, Interval, Products, UnboundedError, checked, linear_map


@dataclass(frozen=True)
class LayerBound:
    """One call of an attention layer inside a network.

    Attributes:
        name: Fully qualified name.
        low: No value of its input is smaller, in either network.
        high: No value of its input is larger.
        own: Bound on the difference that the layer makes by itself.
        inherited: Bound on what it makes of the difference in its input.
        total: Bound on the difference of its output.
    """

    name: str
    low: float
    high: float
    own: float
    inherited: float
    total: float


def bound_layer(name: str, module: SelfAttention, x: Interval, output: torch.Size) -> tuple[Interval, LayerBound]:
    """Bounds on the output of an attention layer and its convolution.

    Args:
        name: The layer's name.
        module: The layer.
        x: Bounds on its input, [batch, in_channels, *size] or without the batch.
        output: The output's shape.

    Raises:
        ConversionError: The layer has no certificate.
        UnboundedError: It has no finite one.
    """
    layer = checked_layer(module)
    spec, batch = layer.spec, x if x.low.ndim == layer.spec.axes + 2 else x.map(lambda bound: bound.unsqueeze(0))

    def convolved(values: Tensor, kernel: Tensor) -> Tensor:
        return convolve_unpadded(spec, values, kernel, output)

    others = (0, *range(2, batch.low.ndim))
    limits = batch.low.amin(others), batch.high.amax(others)
    kernel, bias, absolute = layer.kernel.detach().double().cpu(), _channels(layer.bias, spec), magnitudes(layer.kernel)
    exact, read = linear_map(
        batch, lambda values: convolved(values, kernel), lambda values: convolved(values, absolute)
    )
    read, shape = (read + bias.abs()).transpose(0, 1), read.transpose(0, 1).shape
    own, tail, *sides = pixel_errors(layer, read.flatten(1), input_range=limits)
    if not math.isfinite(own):
        raise UnboundedError("no finite certificate is known for values this large")
    rounding, total = (
        part.reshape(shape).transpose(0, 1) for part in (torch.maximum(*sides), tail + sides[0] + sides[1])
    )
    tails = _channels(tail.flatten(), spec)
    low, high = exact.low - tails, exact.high + tails
    if not layer.regime.is_exact:  # soft attention reads other pixels, of which the channel's range is known
        least, most = _of_ranges(layer, *padded_range(spec, limits))
        low, high = torch.maximum(low, least), torch.minimum(high, most)
    error = (exact.error + total) * OUTWARD
    found = checked(Interval(low + bias - rounding, high + bias + rounding, error))
    figures = float(limits[0].min()), float(limits[1].max()), own, float(exact.error.max())
    bounded = found.map(lambda bound: bound.reshape(output))
    return bounded, LayerBound(name, *figures, float(found.error.max()))


def bound_program(
    name: str, module: SelfAttention, x: Interval, output: torch.Size, hypothesis: Hypothesis
) -> tuple[Interval, Tensor]:
    """Bounds on the output of an attention layer or its convolution, and their error against the exact convolution.

    One-hot attention is a sum of the convolution's products, in some order. Soft attention is computed by some engine
    where sums may have any order, and rounded once where every operation is.

    Returns:
        The bounds, whose error is that of one program, and the part of it that is the softmax tail.

    Raises:
        ConversionError: The layer has no certificate.
        UnboundedError: It has no finite one.
    """
    (box, _), layer = bound_layer(name, module, x, output), checked_layer(module)
    spec, batch = layer.spec, x if x.low.ndim == layer.spec.axes + 2 else x.map(lambda bound: bound.unsqueeze(0))
    is_exact, bias = hypothesis.name == "exact", _channels(layer.bias, spec)
    dtype = torch.float64 if is_exact else layer.weight.dtype
    kernel, absolute = layer.kernel.detach().double().cpu(), magnitudes(layer.kernel)

    def convolved(values: Tensor, kernel: Tensor) -> Tensor:
        return convolve_unpadded(spec, values, kernel, output)

    exact, read = linear_map(
        batch, lambda values: convolved(values, kernel), lambda values: convolved(values, absolute)
    )
    present, terms = (batch.low != 0) | (batch.high != 0), kernel[0].numel() + 1
    counted: Tensor | int = terms
    if hypothesis.name in ("any order", "known order"):
        counted = convolved(present.double(), (kernel != 0).double()).round() + (layer.bias is not None)
    sharper = None
    if hypothesis.name == "contract":
        norm = (convolved(batch.largest.square(), kernel.square()) + bias.square()).sqrt()
        unit = unit_roundoff(torch.promote_types(dtype, torch.float32))
        sharper = CONTRACT * unit * (norm + exact.largest) * OUTWARD
    lost = (
        2
        * torch.finfo(torch.float32).smallest_normal
        * (float(absolute.flatten(1).sum(1).max()) + float(x.largest.max()) * terms)
    )
    moved = Interval(exact.low + bias, exact.high + bias, torch.zeros_like(exact.low))
    found = Arithmetic(dtype, False, hypothesis).rounded(
        moved,
        read + bias.abs(),
        terms,
        same=False,
        lost=0.0 if is_exact else lost,
        narrowings=spec.num_heads + 2 if spec.transposed else 1,
        products=Products(counted, terms, sharper),
    )
    error, tails = found.error, torch.zeros_like(found.error)
    if not layer.regime.is_exact and not is_exact:
        others = (0, *range(2, batch.low.ndim))
        limits = batch.low.amin(others), batch.high.amax(others)
        _, tail, *sides = pixel_errors(layer, (read + bias.abs()).transpose(0, 1).flatten(1), input_range=limits)
        tails = tails + _channels(tail.flatten(), spec)
        if hypothesis.name == "once":
            error = error + tails * (1 + unit_roundoff(dtype)) * OUTWARD
        else:
            computed = torch.maximum(*sides).reshape(read.transpose(0, 1).shape).transpose(0, 1)
            error = torch.maximum(error, computed * hypothesis.scale + gamma(terms, U64) * (read + bias.abs())) + tails
    error = error * OUTWARD
    return Interval(box.low, box.high, error.reshape(output)), tails.reshape(output)


def convolve_unpadded(
    spec: ConvSpec, x: Tensor, kernel: Tensor, output: torch.Size, bias: Tensor | None = None
) -> Tensor:
    """The convolution of a geometry, in x's precision.

    Args:
        spec: The geometry.
        x: [batch, in_channels, *size], or without the batch.
        kernel: As ``ConvSpec.kernel`` gives it.
        output: The output's shape, which for a transposed convolution may be chosen.
        bias: [out_channels], or None.
    """
    if x.ndim == spec.axes + 1:
        return convolve_unpadded(spec, x.unsqueeze(0), kernel, output, bias).squeeze(0)
    if spec.transposed and tuple(spec.output_size(Size(*x.shape[2:]))) != tuple(output[-spec.axes :]):
        spec = spec.with_output_size(x.shape[2:], output)
    return convolve_padded(spec, spec.pad(x), kernel, bias)


def _channels(values: Tensor | None, spec: ConvSpec) -> Tensor:
    """A number for each output channel, to be added to [batch, out_channels, *size]."""
    kept = torch.zeros(spec.out_channels) if values is None else values.detach().cpu()
    return kept.double().view(-1, *[1] * spec.axes)


def _of_ranges(layer: LayerValues, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds on an output whose head reads a mean of values within each channel's range."""
    spec, kernel = layer.spec, layer.kernel.detach().double().cpu().flatten(2)
    ends = [end.view(spec.groups, 1, -1) for end in (low, high)]
    parts = [part.sum(-1).unflatten(0, (spec.groups, -1)) for part in (kernel.clamp(min=0), kernel.clamp(max=0))]
    least = (parts[0] * ends[0] + parts[1] * ends[1]).sum(-1).flatten()
    most = (parts[0] * ends[1] + parts[1] * ends[0]).sum(-1).flatten()
    outward = ((parts[0] - parts[1]) * torch.maximum(ends[0].abs(), ends[1].abs())).sum(-1).flatten() * (OUTWARD - 1)
    return _channels(least - outward, spec), _channels(most + outward, spec)
