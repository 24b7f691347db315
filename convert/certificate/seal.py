"""A seal over the numbers of a layer and its certificate, so that a report and weights can be seen to belong together.

The seal is sum (i + 1) x_i over the ends of the input's range, the claimed alpha, the heads' alphas, and each output
channel's weights and bias, an exact integer times a power of two. If one number is another, so is the seal
(``proofs/formal/Checker.v``, theorem one_change_breaks_the_seal; ``proofs/claims/certificate/rounding.py``). It is no
signature: whoever changes several numbers can make the seal fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..heads.values import AttentionLayer

_CHUNK = 2**16  # numbers whose sums, weighted by their places, fit into 64 bits if they have 27 themselves
_HALF = 26  # bits of the lower half of a longer significand
_LAYOUT = {torch.float32: (torch.int32, 23, -149), torch.float64: (torch.int64, 52, -1074)}


def seal(layer: AttentionLayer, input_range: tuple[float, float]) -> str:
    """The seal of a layer's certificate for a range, as a hexadecimal integer, "p" and the exponent of 2."""
    alphas = list(layer.regime.alpha)
    leading = [*input_range, alphas[0], *alphas]
    exponent = min(lowest_exponent(layer), *map(_exponent_of, leading))
    total = sum((i + 1) * Fraction(number) for i, number in enumerate(leading)) * 2**-exponent
    found, place = int(total), len(leading)
    for chunk in _chunks(layer):
        found += _weighted(chunk, place, exponent)
        place += len(chunk)
    return f"{found:#x}p{exponent}"


def lowest_exponent(layer: AttentionLayer) -> int:
    """The smallest exponent of a number of the layer, in the precision that it computes with."""
    return _LAYOUT[torch.promote_types(layer.weight.dtype, layer.regime.dtype)][2]


def _exponent_of(number: float) -> int:
    """e, with m 2^e the number as binary64 stores it."""
    return max(math.frexp(number)[1] - 53, -1074) if number else 0


def _chunks(layer: AttentionLayer) -> Iterator[Tensor]:
    """Each output channel's weights, input channel by input channel and tap by tap, then its bias."""
    rows = layer.kernel.detach().flatten(1)
    bias = rows.new_zeros(len(rows)) if layer.bias is None else layer.bias.detach()
    step = max(_CHUNK // (rows.shape[1] + 1), 1)
    for start in range(0, len(rows), step):
        block = torch.cat((rows[start : start + step], bias[start : start + step, None]), 1).cpu().flatten()
        yield from block.split(_CHUNK)


def _weighted(numbers: Tensor, place: int, exponent: int) -> int:
    """sum of (place + i + 1) x_i, times 2^-exponent."""
    significands, exponents = _significands(numbers)
    halves = [(0, significands)]
    if numbers.dtype == torch.float64:
        halves = [(_HALF, significands >> _HALF), (0, significands & ((1 << _HALF) - 1))]
    places = np.arange(1, len(significands) + 1)
    first = int(exponents.min())
    total = 0
    for shift, half in halves:
        by_exponent = np.zeros((2, int(exponents.max()) - first + 1), dtype=np.int64)
        for sums, terms in zip(by_exponent, (half, half * places), strict=True):
            np.add.at(sums, exponents - first, terms)
        for i, (plain, weighted) in enumerate(by_exponent.T.tolist()):
            total += (place * plain + weighted) << (first + i + shift - exponent)
    return total


def _significands(numbers: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """m and e, with m 2^e the numbers; read from their bits, since a processor may take subnormal numbers for 0."""
    computed = numbers.to(torch.promote_types(numbers.dtype, torch.float32))
    integers, width, lowest = _LAYOUT[computed.dtype]
    bits = computed.view(integers).numpy().astype(np.int64)
    raised = (bits & torch.iinfo(integers).max) >> width
    fraction = bits & ((1 << width) - 1)
    significands = np.where(raised > 0, fraction + (1 << width), fraction)
    return np.where(bits < 0, -significands, significands), np.maximum(raised, 1) + (lowest - 1)
