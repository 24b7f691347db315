"""Values for a random layer: integers whose sums are exact, and real numbers.

All values are drawn on the CPU in double precision and then rounded and moved, so that every device gets the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .....convert.padded import convolution as convolution_of
from .....convert.spec import Convolution, ConvSpec
from ...random_layers import RandomLayer, random_integers

LARGEST_INTEGER = 8


def integer_limit(spec: ConvSpec, dtype: torch.dtype) -> int:
    """Largest integer for weights, bias and inputs so that every sum of an output or an input gradient is exact.

    m products of integers up to L, and a bias up to L, add up to at most m L^2 + L, which a number with p bits holds
    exactly, in any order of the sum, up to 2^p = 2 / eps. The strictest geometry here has 108 terms, which fit the 8
    bits of bfloat16 for L = 1.
    """
    terms = spec.num_heads * max(spec.in_channels, spec.out_channels) // spec.groups
    fits = terms * LARGEST_INTEGER**2 + LARGEST_INTEGER <= 2 / torch.finfo(dtype).eps
    return LARGEST_INTEGER if fits else 1


def convolution(layer: RandomLayer, device: torch.device, *, integers: bool = False) -> Convolution:
    """The convolution with its values: integers, or normal numbers."""
    conv = convolution_of(layer.spec, dtype=layer.torch_dtype, device=device)
    generator = layer.generator("parameters")
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(_values(layer, parameter.shape, generator, integers=integers))
    return conv


def images(layer: RandomLayer, device: torch.device, *, integers: bool = False) -> Tensor:
    """A batch of inputs, [batch, in_channels, *size]: integers, or normal numbers."""
    shape = torch.Size((layer.batch, layer.spec.in_channels, *layer.size))
    values = _values(layer, shape, layer.generator("images"), integers=integers)
    return layer.lay_out(values.to(device, layer.torch_dtype))


def cotangent(layer: RandomLayer, output: Tensor) -> Tensor:
    """Integers to multiply an output's gradient with, so few of them non-zero that sums over all pixels are exact."""
    limit = integer_limit(layer.spec, layer.torch_dtype)
    generator = layer.generator("cotangent")
    values = random_integers(output.shape, limit, generator).flatten()
    exact = int(2 / torch.finfo(layer.torch_dtype).eps) // limit**2
    values[torch.randperm(len(values), generator=generator)[exact:]] = 0
    return values.view(output.shape).to(output)


def _values(layer: RandomLayer, shape: torch.Size, generator: torch.Generator, *, integers: bool) -> Tensor:
    if integers:
        return random_integers(shape, integer_limit(layer.spec, layer.torch_dtype), generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
