"""What an attention layer makes of an interval: its own certificate, and what it inherits."""

from __future__ import annotations

import math

import torch

from ...attention.layer import SelfAttention
from ...errors import ConversionError
from ..layer import Certificate, certify, padded_range
from .interval import Interval, UnboundedError, affine, checked


def bound_attention(layer: SelfAttention, x: Interval) -> tuple[Interval, Certificate, float]:
    """Bounds on an attention layer and its convolution: the output, the layer's own certificate, what it inherits.

    Raises:
        UnboundedError: The input's values are not bounded, or no finite certificate is known.
    """
    spec = layer.spec
    x = x.expanded(spec.in_channels)
    if not x.is_bounded:
        raise UnboundedError("the values of its input are not bounded")
    try:
        own = certify(layer, input_range=(x.low, x.high))
    except ConversionError as refusal:
        raise UnboundedError(str(refusal)) from refusal
    if not math.isfinite(own.bound):
        raise UnboundedError("no finite certificate is known for values this large")
    low, high = padded_range(spec, (x.low, x.high))
    exact, _ = affine(Interval(low, high, x.error), layer.kernel.detach().flatten(2), layer.bias, groups=spec.groups)
    rounding = max(own.rounding_attention, own.rounding_convolution)
    error = exact.error + torch.tensor(own.per_channel, dtype=torch.float64, device="cpu")
    output = checked(Interval(exact.low - rounding, exact.high + rounding, error))
    return output, own, float(exact.error.max())
