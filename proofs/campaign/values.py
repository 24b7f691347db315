"""Values for a random layer: integers whose sums are exact, normal numbers, and numbers chosen to break something.

Some are of every magnitude that a precision has: each channel has its own, some are zero, some subnormal. ``PATTERNS``
are aimed at the construction, a computation that overflows, or the bound: each is a function of a random layer, its
convolution and its attention, and returns one input [1, in_channels, *size] in the layer's precision. All values are
drawn on the CPU in double precision and then rounded and moved, so that every device gets the same.

Some inputs come near the bounds of a certificate. The difference between soft attention and the convolution at one
output is linear in the input, sum_k g_k x_k, where g is its gradient. Over all inputs between low and high it is
largest for

    x_k = high where g_k > 0,  low elsewhere,

so that one step of gradient ascent reaches the worst case: for inputs on [-1, 1], the sign of g. The sum over k is g's
over the pixels of the image: what padding copies is added to the pixel it is copied from, and zeros that it adds cannot
be chosen.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ...convert.arguments import Size
from ...convert.layer.layer import SelfAttention
from ...convert.spec import Convolution, ConvSpec
from ...convert.subclasses.padded import convolution as convolution_of
from .layers import RandomLayer, random_integers

_ZERO = 4  # one weight in four is zero
LARGEST_INTEGER = 8
SPREAD = 4.0  # normal numbers are cut off here, so that a scale bounds them
_LARGE = 2.0**10
_MOST_MOVED, _LARGEST_ALPHA = 2.0, 8.0  # of moved heads; the first in pixels, either way along each axis
ANY_SIZE, WITHOUT_OVERFLOW = "extreme input", "extreme input without overflow"


def extreme_convolution(layer: RandomLayer, device: torch.device) -> Convolution:
    """The convolution, the weights of each pair of channels scaled by a power of two of their own.

    A quarter of the layers have subnormal parameters alone, whose errors are then not lost among those of larger ones.
    """
    limits = torch.finfo(layer.torch_dtype)
    largest = layer.choose("largest parameter", (limits.max, limits.max, limits.max, limits.smallest_normal))
    conv = convolution_of(layer.spec, dtype=layer.torch_dtype, device=device)
    generator = layer.generator("extreme parameters")
    with torch.no_grad():
        for parameter in conv.parameters():
            values = _scaled(layer, parameter.shape, generator, largest, scales=parameter.shape[:2])
            values[torch.randint(_ZERO, parameter.shape, generator=generator) == 0] = 0
            parameter.copy_(values)
    return conv


def extreme_inputs(layer: RandomLayer, conv: Convolution) -> dict[str, Tensor]:
    """Two inputs [1, in_channels, *size], each channel scaled by a power of two of its own.

    One may be as large as the precision allows, so that sums overflow and no bound is finite. The other is so small
    that no sum of products overflows: there is always something to compare.
    """
    largest = torch.finfo(layer.torch_dtype).max
    weight = max(1.0, float(conv.weight.detach().double().abs().max()))
    terms = layer.spec.num_heads * max(layer.spec.in_channels, layer.spec.out_channels)
    made = {}
    for name, most in ((ANY_SIZE, largest), (WITHOUT_OVERFLOW, largest / weight / (8 * terms))):
        shape = torch.Size(_shape(layer))
        values = _scaled(layer, shape, layer.generator("extreme images"), most, scales=shape[:2])
        made[name] = layer.lay_out(values.to(conv.weight))
    return made


@contextmanager
def perhaps_flushed(layer: RandomLayer) -> Iterator[None]:
    """For half of the layers, subnormal numbers are flushed to zero on a CPU that can, as a user may have asked for."""
    torch.set_flush_denormal(layer.choose("flush", (False, True)))
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _scaled(
    layer: RandomLayer, shape: torch.Size, generator: torch.Generator, largest: float, *, scales: torch.Size
) -> Tensor:
    """Normal numbers times powers of two, from the smallest subnormal number up to ``largest`` at most."""
    limits = torch.finfo(layer.torch_dtype)
    least = round(math.log2(limits.smallest_normal) + math.log2(limits.eps))
    most = math.frexp(largest / SPREAD)[1] - 1
    exponents = torch.randint(least, most + 1, scales, generator=generator)
    powers = torch.ldexp(torch.ones(scales, dtype=torch.float64), exponents)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64).clamp(-SPREAD, SPREAD)
    return normal * powers.view(*scales, *(1,) * (len(shape) - len(scales)))


def integer_limit(spec: ConvSpec, dtype: torch.dtype) -> int:
    """Largest integer for weights, bias and inputs so that every sum of an output or an input gradient is exact.

    m products of integers up to L, and a bias up to L, add up to at most m L^2 + L, which a number with p bits holds
    exactly, in any order of the sum, up to 2^p = 2 / eps. The strictest geometry here has 108 terms, which fit the 8
    bits of bfloat16 for L = 1.
    """
    terms = spec.num_heads * max(spec.in_channels, spec.out_channels) // spec.groups
    fits = terms * LARGEST_INTEGER**2 + LARGEST_INTEGER <= 2 / torch.finfo(dtype).eps
    return LARGEST_INTEGER if fits else 1


def drawn_convolution(layer: RandomLayer, device: torch.device, *, integers: bool = False) -> Convolution:
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


@torch.no_grad()
def move_heads(attention: SelfAttention, generator: torch.Generator) -> None:
    """Moves each head off its tap, and gives each its own sharpness."""
    moves, alphas = (
        torch.rand(positions.shape, generator=generator, dtype=torch.float64)
        for positions in (attention.centers, attention.alpha)
    )
    centers = attention.centers + (_MOST_MOVED * (2 * moves - 1)).to(attention.centers)
    attention.set_positions(centers=centers, alpha=_LARGEST_ALPHA * (alphas + 1 / 128))


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


def gain(layer: SelfAttention, size: Sequence[int], *, output: Sequence[int]) -> Tensor:
    """g: what each pixel adds to the difference at one output, [1, in_channels, *size], in double precision.

    Args:
        layer: A layer with its heads at the kernel's taps.
        size: Size of the input, without padding.
        output: Channel and position of the output; of an image its row and column.
    """
    spec, (channel, *position) = layer.spec, output
    query = [places[number] for places, number in zip(spec.query_positions(Size(*size)), position, strict=True)]
    change = _changes(layer, query, spec.padded_size(Size(*size))).flatten(1)
    per_group = spec.in_channels // spec.groups
    first = channel // (spec.out_channels // spec.groups) * per_group
    weight = layer.kernel.detach().double().cpu()[channel].flatten(1)
    x = torch.zeros(1, spec.in_channels, *size, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        difference = torch.einsum("ch,hk,ck->", weight, change, spec.pad(x)[0, first : first + per_group].flatten(1))
    return torch.autograd.grad(difference, x)[0]


def largest_difference(change: Tensor) -> float:
    """sum_k g_k x_k for the worst input on [-1, 1]."""
    return float(change.abs().sum())


def _changes(layer: SelfAttention, query: Sequence[int], grid: Size) -> Tensor:
    """Attention probabilities of each head at a query, minus 1 at its target: [num_heads, *grid]."""
    changes = []
    for alpha, offsets in zip(layer.regime.alpha, layer.spec.tap_offsets, strict=True):
        target = tuple(place + offset for place, offset in zip(query, offsets, strict=True))
        change = torch.ones((), dtype=torch.float64)
        for place, length in zip(target, grid, strict=True):
            keys = torch.arange(length, dtype=torch.float64)
            change = change.unsqueeze(-1) * torch.softmax(-alpha * (keys - place).square(), 0)
        change[target] = 0
        change[target] = -change.sum()
        changes.append(change)
    return torch.stack(changes)
