"""Weights and inputs of every magnitude that a precision has: each channel with its own, some zero, some subnormal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .....convert.spec import Convolution
from ...random_layers import RandomLayer, convolution_of
from .inputs import choose

_ZERO = 4  # one weight in so many is zero
_SPREAD = 4.0  # normal numbers are cut off here


def extreme_convolution(layer: RandomLayer, device: torch.device) -> Convolution:
    """The convolution, the weights of each pair of channels scaled by a power of two of their own.

    A quarter of the layers have subnormal parameters alone, whose errors are then not lost among those of larger ones.
    """
    limits = torch.finfo(layer.torch_dtype)
    largest = choose(layer, "largest parameter", (limits.max, limits.max, limits.max, limits.smallest_normal))
    conv = convolution_of(layer.spec, dtype=layer.torch_dtype, device=device)
    generator = layer.generator("extreme parameters")
    with torch.no_grad():
        for parameter in conv.parameters():
            scales = _powers_of_two(layer, parameter.shape[:2], generator, largest)
            scales = scales.view(*scales.shape, *(1,) * (parameter.ndim - scales.ndim))
            values = _normal(parameter.shape, generator) * scales
            values[torch.randint(_ZERO, parameter.shape, generator=generator) == 0] = 0
            parameter.copy_(values)
    return conv


def extreme_images(layer: RandomLayer, device: torch.device) -> Tensor:
    """One input [1, in_channels, *size], each channel scaled by a power of two of its own."""
    generator, largest = layer.generator("extreme images"), torch.finfo(layer.torch_dtype).max
    scales = _powers_of_two(layer, torch.Size((layer.spec.in_channels, *(1,) * layer.spec.axes)), generator, largest)
    values = _normal(torch.Size((1, layer.spec.in_channels, *layer.size)), generator) * scales
    return layer.lay_out(values.to(device, layer.torch_dtype))


@contextmanager
def perhaps_flushed(layer: RandomLayer) -> Iterator[None]:
    """For half of the layers, subnormal numbers are flushed to zero on a CPU that can, as a user may have asked for."""
    torch.set_flush_denormal(choose(layer, "flush", (False, True)))
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _powers_of_two(layer: RandomLayer, shape: torch.Size, generator: torch.Generator, largest: float) -> Tensor:
    """From the smallest subnormal number to about a quarter of the largest: times normal numbers, none is larger."""
    limits = torch.finfo(layer.torch_dtype)
    least = round(math.log2(limits.smallest_normal) + math.log2(limits.eps))
    most = math.frexp(largest / _SPREAD)[1] - 1
    exponents = torch.randint(least, most + 1, shape, generator=generator)
    return torch.ldexp(torch.ones(shape, dtype=torch.float64), exponents)


def _normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.clamp(-_SPREAD, _SPREAD)
