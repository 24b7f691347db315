"""Inputs that are chosen to break something: the construction, a computation that overflows, or the bound.

Each is a function of a random layer, its convolution and its attention, and returns one input
[1, in_channels, *size] in the layer's precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from .....convert import SelfAttention
from .....convert.spec import Convolution, ConvSpec
from ...random_layers import RandomLayer

SPREAD = 4.0  # normal numbers are cut off here, so that a scale bounds them
_LARGE = 2.0**10


def one_hot(layer: RandomLayer, conv: Convolution, attention: SelfAttention) -> Tensor:
    """One pixel of one channel is 1, the others 0: shows where every head looks."""
    x = torch.zeros(_shape(layer))
    x.view(-1)[layer.choose("pixel", range(x.numel()))] = 1
    return x.to(conv.weight)


def huge(layer: RandomLayer, conv: Convolution, attention: SelfAttention) -> Tensor:
    """As large as the sums allow without an overflow."""
    return (_room(conv) * _normal(layer, "huge")).to(conv.weight)


def tiny(layer: RandomLayer, conv: Convolution, attention: SelfAttention) -> Tensor:
    """Denormal numbers, whose products with the weights may vanish."""
    smallest = torch.finfo(layer.torch_dtype).smallest_normal * torch.finfo(layer.torch_dtype).eps
    return (64 * smallest * _normal(layer, "tiny")).to(conv.weight)


def cancelling(layer: RandomLayer, conv: Convolution, attention: SelfAttention) -> Tensor:
    """Large numbers of nearly one size, with the signs of a chessboard: their sums are mostly rounding."""
    sign = 1.0 - 2 * (sum(torch.meshgrid(*map(torch.arange, layer.size), indexing="ij")) % 2)
    large = min(_LARGE, _room(conv))
    return (large * sign * (1 + _normal(layer, "cancelling") / 64)).to(conv.weight)


def worst_case(layer: RandomLayer, conv: Convolution, attention: SelfAttention) -> Tensor:
    """The input in [-1, 1] for which the two differ most at one output, in exact arithmetic.

    The difference is linear in the input, so it is largest for the sign of its gradient. One-hot attention does not
    differ; the bound on its rounding is a multiple of sum |w||x|, largest for the sign of the convolution's gradient.
    """
    x = torch.zeros(_shape(layer), dtype=torch.float64, device=conv.weight.device, requires_grad=True)
    output = copy.deepcopy(conv).double()(x)
    if not attention.regime.is_exact:
        output = output - copy.deepcopy(attention).double()(x)
    channel = layer.choose("channel", range(output.shape[1]))
    (gradient,) = torch.autograd.grad(output[(0, channel, *(length // 2 for length in output.shape[2:]))], x)
    return gradient.sign().to(conv.weight)


PATTERNS: dict[str, Callable[[RandomLayer, Convolution, SelfAttention], Tensor]] = {
    "one-hot": one_hot,
    "huge": huge,
    "tiny": tiny,
    "cancelling": cancelling,
    "worst case": worst_case,
}


def adversarial_inputs(layer: RandomLayer, conv: Convolution, attention: SelfAttention) -> dict[str, Tensor]:
    """An input of each pattern, in the layer's memory format."""
    return {f"{name} input": layer.lay_out(pattern(layer, conv, attention)) for name, pattern in PATTERNS.items()}


def _shape(layer: RandomLayer) -> tuple[int, ...]:
    return (1, layer.spec.in_channels, *layer.size)


def _normal(layer: RandomLayer, purpose: str) -> Tensor:
    return torch.randn(_shape(layer), generator=layer.generator(purpose), dtype=torch.float64).clamp(-SPREAD, SPREAD)


def _room(conv: Convolution) -> float:
    """A power of two r so that inputs up to 4 r leave every sum |w||x| below a quarter of the largest number."""
    kernel = ConvSpec.from_conv(conv).kernel(conv.weight.detach())
    sums = float(kernel.abs().double().flatten(1).sum(1).max())
    largest = torch.finfo(conv.weight.dtype).max / (4 * SPREAD * max(sums, 1.0))
    return 2.0 ** math.floor(math.log2(largest))
