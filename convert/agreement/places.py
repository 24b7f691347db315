"""Sampled outputs of a convolution: what it reads there, and what it gives in float64.

A convolution, transposed or not, is one over its padded input (``ConvSpec.pad``): at output q it reads the pixels
q * stride + tap * dilation. At some hundred places that is a product of small matrices, whatever the map's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..bounds.rounding import OUTWARD
from ..bounds.underflow import magnitudes
from ..certificate.data import MeasuredInput
from ..heads.values import LayerValues
from ..spec import ConvSpec

_MOST = 2**21  # numbers that are read at all places together
_FEWEST = 16
_AT_AN_EDGE = 0.25  # share of places within a kernel of an edge, where padding is seen


class Places(NamedTuple):
    """Pixels of a batch of maps.

    Attributes:
        image: Indices of images, [places].
        along: Indices along each axis, [places] each.
    """

    image: Tensor
    along: tuple[Tensor, ...]

    @classmethod
    def draw(cls, shape: Sequence[int], spec: ConvSpec, count: int) -> Places:
        """Draws places of an output [batch, out_channels, *size], the same ones for the same shape."""
        generator = torch.Generator().manual_seed(0)
        count = max(_FEWEST, min(count, _MOST // max(1, spec.in_channels * spec.num_heads)))

        def below(most: int) -> Tensor:
            return torch.randint(most, (count,), generator=generator, device="cpu")

        along = []
        for length, reach in zip(shape[2:], spec.reach, strict=True):
            near = below(min(reach + 1, length))
            edge = torch.where(below(2) == 0, near, length - 1 - near)
            is_edge = torch.rand(count, generator=generator, dtype=torch.float32, device="cpu") < _AT_AN_EDGE
            along.append(torch.where(is_edge, edge, below(length)))
        return cls(below(shape[0]), tuple(along))

    def of(self, output: Tensor) -> Tensor:
        """The numbers of an output there, [places, out_channels]."""
        index: Any = (self.image, slice(None), *self.along)
        return output[index]

    def windows(self, spec: ConvSpec, x: Tensor) -> Tensor:
        """Pixels that the convolution reads there of x [batch, in_channels, *size]: [places, in_channels, *kernel]."""
        padded, ones, indices = spec.pad(x), (1,) * spec.axes, []
        for axis, place in enumerate(self.along):
            taps = torch.arange(spec.kernel_size[axis], device="cpu") * spec.dilation[axis]
            pixels = place[:, None] * spec.query_stride[axis] + taps
            indices.append(pixels.reshape(len(place), *ones[:axis], len(taps), *ones[axis + 1 :]))
        index: Any = (self.image.reshape(-1, *ones), slice(None), *indices)
        return padded[index].movedim(-1, 1)


def convolved(spec: ConvSpec, windows: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution in float64, [places, out_channels].

    Args:
        spec: Its geometry.
        windows: What it reads, [places, in_channels, *kernel_size].
        kernel: [out_channels, in_channels / groups, *kernel_size].
        bias: [out_channels], or None.
    """
    read = windows.double().reshape(len(windows), spec.groups, -1)
    weights = kernel.detach().double().reshape(spec.groups, spec.out_channels // spec.groups, -1)
    sums = torch.einsum("pgi,goi->pgo", read, weights).flatten(1)
    return sums if bias is None else sums + bias.detach().double()


def measured_at(layer: LayerValues, x: Tensor, windows: Tensor) -> MeasuredInput:
    """As ``measure_input``, with the sums of some places alone: bounds hold there.

    Args:
        layer: The layer.
        x: Its input, [batch, in_channels, *size], of finite numbers.
        windows: What is read at the places.
    """
    kept = (0, *range(2, x.ndim))
    low, high = (end.detach().double().cpu() for end in (x.amin(kept), x.amax(kept)))
    if layer.spec.adds_zeros:
        low, high = low.clamp(max=0), high.clamp(min=0)
    sums = convolved(layer.spec, windows.double().abs(), magnitudes(layer.kernel).to(x.device)) * OUTWARD
    return MeasuredInput(low, high, sums.amax(0).cpu())
