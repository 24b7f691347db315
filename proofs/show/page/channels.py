"""The first output channels of a layer as a layer of their own, and the data that the page computes them from.

The page computes, for the query q and in double precision,

    output[q] = bias + sum_h sum_k p_h(q, k) v_h(k),        v_h(k) = sum_c W_{c,h} x_c(k)

It gets the values v_h of all heads, or the input's channels x_c and the weights W, whichever are fewer numbers: two of
the ways to split W_Delta = W_val W_out. Tensors are base64 of little-endian numbers, and JSON has no NaN.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ....convert.bounds.rounding import OUTWARD
from ....convert.bounds.tail import absolute_products
from ....convert.certificate.layer import padded_range
from ....convert.errors import ConversionError
from ....convert.layer.layer import SelfAttention2d
from ..pictures.curve import bounds_or_none, convolution, error_curve, input_range, with_alpha
from ..pictures.scene import Scene

ALPHAS = (*(2.0**k for k in range(-5, 0)), *(2.0 ** (k / 2) for k in range(9)), *(2.0**k for k in range(5, 11)))


def finite(value: Any) -> Any:
    """A number, or a nested list of numbers, with None for what JSON cannot hold."""
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value if value is None or math.isfinite(value) else None


def encoded(tensor: Tensor) -> dict[str, str]:
    """A tensor's numbers, row by row: in double precision if it has it, else in single, which holds the narrower."""
    wide = tensor.dtype == torch.float64
    numbers = tensor.detach().cpu().contiguous().numpy() if wide else tensor.detach().cpu().float().contiguous().numpy()
    kind = "f8" if wide else "f4"
    return {"type": kind, "data": base64.b64encode(numbers.astype(f"<{kind}").tobytes()).decode()}


def pixels(planes: Tensor) -> str:
    """Planes [channels, rows, columns] with values 0 to 1 as base64 of bytes, pixel by pixel."""
    values = (planes.double().nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8)
    return base64.b64encode(values.permute(1, 2, 0).contiguous().cpu().numpy().tobytes()).decode()


def first_channels(layer: SelfAttention2d, x: Tensor, count: int) -> tuple[SelfAttention2d, Tensor]:
    """The first output channels as a layer, on the CPU, and the input channels that they read.

    Args:
        layer: The layer.
        x: Its input, [1, in_channels, rows, columns].
        count: Channels wanted; of a layer with groups, fewer if they would end within a later group.

    Returns:
        The layer, which shares no parameter with the first, and [1, its in_channels, rows, columns].
    """
    spec = layer.spec
    width, per_group = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    groups = max(1, min(count, spec.out_channels) // per_group)
    count = min(count, groups * per_group)
    weight = nn.Parameter(layer.weight[:count].detach().cpu())
    bias = None if layer.bias is None else nn.Parameter(layer.bias[:count].detach().cpu())
    part = replace(spec, in_channels=groups * width, out_channels=count, groups=groups)
    return SelfAttention2d(part, weight=weight, bias=bias), x[:, : groups * width].to(weight)


def numbers_of(scene: Scene, count: int) -> int:
    """Amount of numbers that the page stores for the first ``count`` output channels of a layer."""
    spec = scene.layer.spec
    padded, output = spec.padded_size(scene.size), spec.output_size(scene.size)
    per_group = spec.out_channels // spec.groups
    planes = spec.in_channels // spec.groups * max(1, count // per_group)
    if not _reads_input(spec.in_channels // spec.groups, spec.num_heads):
        planes = spec.num_heads * count
    return planes * padded.rows * padded.columns + count * output.rows * output.columns


@torch.no_grad()
def channels_data(scene: Scene, count: int) -> dict[str, Any]:
    """The first channels as plain data: what heads mix, the convolution's result, and the error on this input."""
    layer, x = first_channels(scene.layer, scene.x, count)
    spec, expected, curve = layer.spec, convolution(layer, x), error_curve(layer, x, ALPHAS)
    width, per_group = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    reads_input = _reads_input(width, spec.num_heads)
    padded = spec.pad(x)[0]
    scales, roundings = _limits(layer, x)
    channels = [
        {
            "channel": number,
            "planes": number // per_group if reads_input else number,
            "projection": finite(layer.weight[number].flatten(1).T.double().tolist()) if reads_input else None,
            "bias": 0.0 if layer.bias is None else finite(float(layer.bias[number])),
            "convolution": encoded(expected[0, number]),
            "scale": scales and finite(scales[number]),
            "rounding": roundings and finite(roundings[number]),
            "curve": [finite([p.alpha, p.differences[number], p.bounds and p.bounds[number]]) for p in curve],
        }
        for number in range(spec.out_channels)
    ]
    planes = torch.unflatten(padded, 0, (spec.groups, width)) if reads_input else _values(layer, padded)
    return {"planes": [encoded(group) for group in planes], "channels": channels}


def _reads_input(width: int, heads: int) -> bool:
    """Whether the input's channels are fewer than the values of all heads."""
    return width <= heads


def _values(layer: SelfAttention2d, padded: Tensor) -> Tensor:
    """v_h(k) of every output channel, [out_channels, heads, padded rows, padded columns]."""
    spec = layer.spec
    weight = torch.unflatten(layer.weight.flatten(2).double(), 0, (spec.groups, -1))
    pixels = torch.unflatten(padded.double(), 0, (spec.groups, -1))
    return torch.einsum("goch,gcrs->gohrs", weight, pixels).flatten(0, 1).to(layer.regime.dtype)


def _limits(layer: SelfAttention2d, x: Tensor) -> tuple[list[float] | None, Sequence[float] | None]:
    """Two parts of every channel's bound for this input's range: tau's factor and the rounding; None if unknown."""
    limits = input_range(x)
    try:
        low, high = padded_range(layer.spec, limits)
    except ConversionError:
        return None, None
    (scale,) = absolute_products(layer, layer.weight, high - low)
    return (scale * OUTWARD).tolist(), bounds_or_none(with_alpha(layer, None), limits)
