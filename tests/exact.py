"""What attention and convolution compute, in exact arithmetic: independent of the code under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath
from torch import Tensor

from conv2attn.convert import SelfAttention
from conv2attn.convert.arguments import Size


def exact_difference(layer: SelfAttention, x: Tensor, output: Sequence[int]) -> mpmath.mpf:
    """Attention minus convolution at one output (channel, *position) of the first image, in mpmath's precision."""
    spec, (channel, *position) = layer.spec, output
    padded = spec.pad(x)[0].double()
    query = [places[number] for places, number in zip(spec.query_positions(Size(*x.shape[2:])), position, strict=True)]
    per_group = spec.in_channels // spec.groups
    first = channel // (spec.out_channels // spec.groups) * per_group
    difference = mpmath.mpf(0)
    for head, offset in enumerate(spec.tap_offsets):
        alpha = layer.alpha[head].item()
        target = tuple(place + step for place, step in zip(query, offset, strict=True))
        axes = [
            [mpmath.exp(-alpha * (k - place) ** 2) for k in range(length)]
            for place, length in zip(target, padded.shape[1:], strict=True)
        ]
        total = mpmath.fprod(map(mpmath.fsum, axes))
        for c in range(per_group):
            image = padded[first + c]
            tap = layer.kernel.flatten(2)[channel, c, head].item()
            difference += mpmath.mpf(tap) * (weighted(axes, image.tolist()) / total - mpmath.mpf(image[target].item()))
    return difference


def weighted(axes: Sequence[Sequence[mpmath.mpf]], image: Any) -> mpmath.mpf:
    """The sum of an image's pixels, nested lists, each times its weight along every axis."""
    if not axes:
        return mpmath.mpf(image)
    parts = zip(axes[0], image, strict=True)
    return mpmath.fsum(weight * weighted(axes[1:], part) for weight, part in parts)
