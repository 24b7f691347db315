"""A layer's difference from its convolution on one input, and its certificate, for many alphas; pages show it, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...convert.certificate.data import convolve_padded
from ...convert.certificate.layer import InputRange, certify
from ...convert.errors import ConversionError
from ...convert.layer.layer import SelfAttention2d

# 1/32 to 1024. Where rounding rules, only powers of two: their scores are exact, and the bound is smaller.
ALPHAS = (*(2.0 ** (k / 2) for k in range(-10, 9)), *(2.0**k for k in range(5, 11)))


@dataclass(frozen=True)
class Point:
    """One alpha."""

    alpha: float  # sharpness of all heads
    differences: tuple[float, ...]  # largest |attention - convolution| of each output channel
    bounds: tuple[float, ...] | None  # certified bound of each for the input's range, or None if there is none


@torch.no_grad()
def error_curve(layer: SelfAttention2d, x: Tensor, alphas: Sequence[float] = ALPHAS) -> list[Point]:
    """Compares a layer's attention with its convolution, in an engine that shares no step with a convolution call.

    Args:
        layer: A layer with quadratic scores; its own alpha does not count, and its centres are taken as the taps.
        x: Its input, [1, in_channels, rows, columns].
        alphas: Values of the sharpness.
    """
    expected = convolve_padded(layer.spec, layer.spec.pad(x), layer.kernel, layer.bias)
    limits = input_range(x)
    points = []
    for alpha in alphas:
        attention = with_alpha(layer, alpha)
        apart = (attention(x) - expected).abs().amax((0, 2, 3))
        points.append(Point(alpha, tuple(apart.tolist()), bounds_or_none(attention, limits)))
    return points


def with_alpha(layer: SelfAttention2d, alpha: float | None) -> SelfAttention2d:
    """The layer at its taps with another alpha (None: one-hot), in the separable engine; it shares the parameters."""
    return SelfAttention2d(layer.spec, weight=layer.weight, bias=layer.bias, alpha=alpha, engine="separable")


def input_range(x: Tensor) -> InputRange:
    """Lowest and highest value of each channel of an input [1, channels, rows, columns]."""
    channels = x.detach().double().transpose(0, 1).flatten(1)
    return channels.amin(1), channels.amax(1)


def bounds_or_none(layer: SelfAttention2d, limits: InputRange) -> tuple[float, ...] | None:
    """The certificate's bound for each output channel, or None where nothing finite is certified."""
    try:
        certificate = certify(layer, input_range=limits)
    except ConversionError:
        return None
    return certificate.per_channel if math.isfinite(certificate.bound) else None
