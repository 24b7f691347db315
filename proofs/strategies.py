"""Hypothesis strategies for convolutions, their geometry and their inputs, valid by construction.

from hypothesis import given
from conv2attn.proofs.strategies import convolutions_with_input

@given(convolutions_with_input())
def test_my_engine(case):
    conv, x = case
    ...
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert.spec import ConvSpec, PaddingMode, Size

INTEGER_LIMIT = 8  # sums of products of integers this small are exact in every dtype down to binary32


@st.composite
def conv_specs(draw: st.DrawFn, *, max_kernel: int = 5, max_channels: int = 4) -> ConvSpec:
    """Geometries of everything nn.Conv2d can say.

    Kernels are even, odd and rectangular; groups go up to depthwise; padding is none, symmetric, "same" (also
    asymmetric) or "valid" in every mode.

    Args:
        draw: Given by hypothesis.
        max_kernel: Most rows and columns of taps.
        max_channels: Most channels in a group, and most groups.
    """
    number = st.integers(1, max_channels)
    groups = draw(number)
    mode = draw(st.sampled_from(get_args(PaddingMode)))
    kernel = draw(_pairs(1, max_kernel))
    named: list[Literal["same", "valid"]] = ["same", "valid"]
    padding = draw(st.one_of(_pairs(0, 3), st.sampled_from(named)))
    return ConvSpec(
        in_channels=groups * draw(number),
        out_channels=groups * draw(number),
        kernel_size=kernel,
        stride=(1, 1) if padding == "same" else draw(_pairs(1, 3)),
        dilation=draw(_pairs(1, 3)),
        padding=padding,
        padding_mode=mode,
        groups=groups,
        bias=draw(st.booleans()),
    )


@st.composite
def input_sizes(draw: st.DrawFn, spec: ConvSpec, *, slack: int = 7) -> Size:
    """Input sizes that a convolution accepts, up to ``slack`` pixels above the smallest, rarely square."""
    top, bottom, left, right = spec.pads
    smallest = []
    for axis, (before, after) in enumerate(((top, bottom), (left, right))):
        span = spec.dilation[axis] * (spec.kernel_size[axis] - 1) + 1
        needed = {"reflect": max(before, after) + 1, "circular": max(before, after)}.get(spec.padding_mode, 1)
        smallest.append(max(span - before - after, needed, 1))
    return Size(*(minimum + draw(st.integers(0, slack)) for minimum in smallest))


@st.composite
def convolutions_with_input(
    draw: st.DrawFn,
    *,
    dtype: torch.dtype = torch.float32,
    integers: bool = False,
    specs: st.SearchStrategy[ConvSpec] | None = None,
) -> tuple[nn.Conv2d, Tensor]:
    """Convolutions with random weights, each with a batch of inputs [batch, in_channels, rows, columns].

    Args:
        draw: Given by hypothesis.
        dtype: Precision of weights and input.
        integers: Draw small integers, so that all sums are exact and equality can be bitwise.
        specs: Geometries to draw from; ``conv_specs()`` by default.
    """
    spec = draw(specs if specs is not None else conv_specs())
    size = draw(input_sizes(spec))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def values(*shape: int) -> Tensor:
        if integers:
            return torch.randint(-INTEGER_LIMIT, INTEGER_LIMIT + 1, shape, generator=generator).to(dtype)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    conv = convolution_of(spec, dtype=dtype)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(values(*parameter.shape))
    return conv, values(draw(st.integers(1, 3)), spec.in_channels, *size)


def convolution_of(spec: ConvSpec, *, dtype: torch.dtype = torch.float32) -> nn.Conv2d:
    """A new nn.Conv2d with this geometry."""
    return nn.Conv2d(
        spec.in_channels,
        spec.out_channels,
        spec.kernel_size,
        stride=spec.stride,
        padding=spec.padding,
        dilation=spec.dilation,
        groups=spec.groups,
        bias=spec.bias,
        padding_mode=spec.padding_mode,
        dtype=dtype,
    )


def _pairs(smallest: int, largest: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(smallest, largest), st.integers(smallest, largest))
