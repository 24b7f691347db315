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
from .interval import EXACT, U64, Arithmetic, Interval, UnboundedError, checked, linear_map
from .operation import Exact, number
from .products import Weighted


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


@dataclass(frozen=True)
class _Examined:
    """Facts on a call of an attention layer, each tensor in the shape of its output.

    Attributes:
        layer: The layer.
        exact: The exact result of its convolution.
        limits: The smallest and largest value of each channel of its input.
        own: Bound on the difference that the layer makes by itself.
        tails: That of soft attention, in exact arithmetic.
        attention: Rounding of attention, by whichever engine.
        convolution: Rounding of the convolution.
    """

    layer: LayerValues
    exact: Exact
    limits: tuple[Tensor, Tensor]
    own: float
    tails: Tensor
    attention: Tensor
    convolution: Tensor

    @classmethod
    def of(cls, module: SelfAttention, x: Interval, output: torch.Size) -> _Examined:
        """Examines a call.

        Raises:
            ConversionError: The layer has no certificate.
            UnboundedError: It has no finite one.
        """
        layer, sums = checked_layer(module), convolution_of(module, output)
        kernel, absolute = number(sums.weight), magnitudes(layer.kernel)
        found = linear_map(x, lambda t: sums.apply(t, kernel), lambda t: sums.apply(t, absolute))
        exact, channel = Exact(*found).shifted(sums.bias), x.low.ndim - layer.spec.axes - 1
        others = [axis for axis in range(x.low.ndim) if axis != channel]
        limits = x.low.amin(others), x.high.amax(others)
        read = exact.scale.transpose(0, channel)
        own, tail, *sides = pixel_errors(layer, read.flatten(1), input_range=limits)
        if not math.isfinite(own):
            raise UnboundedError("no finite certificate is known for values this large")
        attention, convolution = (side.reshape(read.shape).transpose(0, channel) for side in sides)
        tails = torch.zeros_like(exact.scale) + _channels(tail.flatten(), layer.spec)
        return cls(layer, exact, limits, own, tails, attention, convolution)

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """The smallest and largest output of attention or its convolution, whoever computes them."""
        spec = self.layer.spec
        low, high = self.exact.bounds.low - self.tails, self.exact.bounds.high + self.tails
        if not self.layer.regime.is_exact:  # soft attention reads other pixels, of which the channel's range is known
            bias, ends = _channels(self.layer.bias, spec), _of_ranges(self.layer, *padded_range(spec, self.limits))
            low, high = torch.maximum(low, ends[0] + bias), torch.minimum(high, ends[1] + bias)
        rounding = torch.maximum(self.attention, self.convolution)
        return low - rounding, high + rounding


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
    call = _Examined.of(module, x, output)
    inherited, total = call.exact.bounds.error, call.tails + call.attention + call.convolution
    found = checked(Interval(*call.box, (inherited + total) * OUTWARD))
    figures = float(call.limits[0].min()), float(call.limits[1].max()), call.own, float(inherited.max())
    return found, LayerBound(name, *figures, float(found.error.max()))


def bound_program(module: SelfAttention, x: Interval, output: torch.Size, hypothesis: str) -> tuple[Interval, Tensor]:
    """Bounds on the output of an attention layer or its convolution, and their error against the exact convolution.

    One-hot attention is a sum of the convolution's products, in some order. Soft attention is computed by some engine
    where sums may have any order, and rounded once where every operation is.

    Returns:
        The bounds, whose error is that of one program, and the part of it that is the softmax tail.

    Raises:
        ConversionError: The layer has no certificate.
        UnboundedError: It has no finite one.
    """
    call, sums = _Examined.of(module, x, output), convolution_of(module, output)
    layer, is_exact, terms = call.layer, hypothesis == EXACT, sums.terms + 1
    arithmetic = Arithmetic(torch.float64 if is_exact else layer.weight.dtype, False, hypothesis)
    narrowings = layer.spec.num_heads + 2 if layer.spec.transposed else 1
    error, tails = sums.exact(x, arithmetic, terms).rounded(arithmetic, terms, narrowings).error, call.tails
    if is_exact or layer.regime.is_exact:
        tails = torch.zeros_like(tails)
    elif hypothesis == "once":
        error = error + tails * (1 + unit_roundoff(arithmetic.dtype)) * OUTWARD
    else:
        computed = torch.maximum(call.attention, call.convolution)
        error = torch.maximum(error, computed + gamma(terms, U64) * call.exact.scale) + tails
    return Interval(*call.box, error * OUTWARD), tails


def convolution_of(module: SelfAttention, output: torch.Size) -> Weighted:
    """The convolution of an attention layer, on its input as the layer gets it.

    Args:
        module: The layer.
        output: The output's shape.

    Raises:
        ConversionError: The layer has no certificate.
    """
    layer = checked_layer(module)
    kernel, bias = layer.kernel.detach().cpu(), None if layer.bias is None else _channels(layer.bias, layer.spec)

    def apply(t: Tensor, kernel: Tensor) -> Tensor:
        return convolve_unpadded(layer.spec, t, kernel, output)

    terms = kernel[0].numel()
    return Weighted(apply, kernel, bias, apply, terms + 1, terms)


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
    kept = torch.zeros(spec.out_channels, device="cpu") if values is None else values.detach().cpu()
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
