"""Inputs that come near the bounds of a certificate.

The difference between soft attention and the convolution at one output is linear in the input, sum_k g_k x_k, where g
is its gradient. Over all inputs between low and high it is largest for

    x_k = high where g_k > 0,  low elsewhere,

so that one step of gradient ascent reaches the worst case: for inputs on [-1, 1], the sign of g. The sum over k is g's
over the pixels of the image: what padding copies is added to the pixel it is copied from, and zeros that it adds cannot
be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...convert.layer.layer import SelfAttention
from ...convert.size import Size


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
            change = change.unsqueeze(-1) * _softmax(alpha, place, length)
        change[target] = 0
        change[target] = -change.sum()
        changes.append(change)
    return torch.stack(changes)


def _softmax(alpha: float, target: int, length: int) -> Tensor:
    keys = torch.arange(length, dtype=torch.float64)
    return torch.softmax(-alpha * (keys - target).square(), 0)
