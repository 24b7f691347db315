"""What attention and convolution compute, in exact arithmetic: independent of the code under test."""

from __future__ import annotations

import mpmath
from torch import Tensor

from conv2attn.convert import SelfAttention2d
from conv2attn.convert.spec import Size


def exact_difference(layer: SelfAttention2d, x: Tensor, output: tuple[int, int, int]) -> mpmath.mpf:
    """Attention minus convolution at one output (channel, row, column) of the first image, in mpmath's precision."""
    spec, (channel, i, j) = layer.spec, output
    padded = spec.pad(x)[0].double().tolist()
    rows, columns = spec.query_positions(Size(*x.shape[2:]))
    per_group = spec.in_channels // spec.groups
    first = channel // (spec.out_channels // spec.groups) * per_group
    difference = mpmath.mpf(0)
    for head, (row, column) in enumerate(spec.tap_offsets):
        alpha, target = layer.alpha[head].item(), (rows[i] + row, columns[j] + column)
        axes = [
            [mpmath.exp(-alpha * (k - target[axis]) ** 2) for k in range(length)]
            for axis, length in enumerate((len(padded[0]), len(padded[0][0])))
        ]
        total = mpmath.fsum(axes[0]) * mpmath.fsum(axes[1])
        for c in range(per_group):
            image = padded[first + c]
            read = mpmath.fsum(
                weight * mpmath.fdot(zip(axes[1], line, strict=True))
                for weight, line in zip(axes[0], image, strict=True)
            )
            tap = layer.weight[channel, c, head // spec.kernel_size[1], head % spec.kernel_size[1]].item()
            difference += mpmath.mpf(tap) * (read / total - mpmath.mpf(image[target[0]][target[1]]))
    return difference
