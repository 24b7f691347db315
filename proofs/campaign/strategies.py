"""Hypothesis strategies for convolutions, their geometry, inputs and attention, valid by construction.

from hypothesis import given
from conv2attn.proofs.campaign.strategies import convolutions_with_input

@given(convolutions_with_input())
def test_my_engine(case):
    conv, x = case
    ...
"""

from __future__ import annotations

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

from ...convert import SelfAttention, attention_from_conv
from ...convert.arguments import Size
from ...convert.spec import CONVOLUTIONS, Convolution, ConvSpec
from ...convert.subclasses.padded import convolution as convolution_of
from .layers import LONGEST_KERNELS, choose_spec, may_be_wrong, smallest_input
from .values import LARGEST_INTEGER, move_heads

INTEGER_LIMIT = LARGEST_INTEGER  # sums of products of integers this small are exact in every dtype down to binary32

__all__ = [
    "INTEGER_LIMIT",
    "attention_layers",
    "conv_specs",
    "convolution_of",
    "convolutions_with_input",
    "every_spec",
    "input_sizes",
]

_SLACK = {1: 14, 2: 7, 3: 2}  # by the number of axes


@st.composite
def conv_specs(
    draw: st.DrawFn,
    *,
    max_kernel: int = 5,
    max_channels: int = 4,
    axes: int = 2,
    transposed: bool = False,
) -> ConvSpec:
    """Geometries of everything that a convolution can say, of nn.Conv2d by default.

    Kernels are even, odd and rectangular; groups go up to depthwise; padding is none, symmetric, "same" (also
    asymmetric) or "valid" in every mode.

    Args:
        draw: Given by hypothesis.
        max_kernel: Most taps along an axis.
        max_channels: Most channels in a group, and most groups.
        axes: Number of axes.
        transposed: Whether they are of transposed convolutions.
    """
    choices = draw(st.randoms(use_true_random=False))
    return choose_spec(choices, max_kernel=max_kernel, max_channels=max_channels, axes=axes, transposed=transposed)


def every_spec() -> st.SearchStrategy[ConvSpec]:
    """Geometries along one, two and three axes, transposed or not."""
    return st.sampled_from(tuple(CONVOLUTIONS)).flatmap(
        lambda kind: conv_specs(max_kernel=LONGEST_KERNELS[kind[0]], axes=kind[0], transposed=kind[1])
    )


@st.composite
def input_sizes(draw: st.DrawFn, spec: ConvSpec) -> Size:
    """Input sizes that a convolution accepts, up to ``_SLACK`` pixels above the smallest, rarely square."""
    return Size(*(minimum + draw(st.integers(0, _SLACK[spec.axes])) for minimum in smallest_input(spec)))


@st.composite
def convolutions_with_input(
    draw: st.DrawFn,
    *,
    dtype: torch.dtype = torch.float32,
    integers: bool = False,
    specs: st.SearchStrategy[ConvSpec] | None = None,
) -> tuple[Convolution, Tensor]:
    """Convolutions with random weights, each with a batch of inputs [batch, in_channels, *size].

    Calls that torch may compute wrongly on some processor are left out (``may_be_wrong``).

    Args:
        draw: Given by hypothesis.
        dtype: Precision of weights and input.
        integers: Draw small integers, so that all sums are exact and equality can be bitwise.
        specs: Geometries to draw from; ``conv_specs()`` by default.
    """
    spec = draw(specs if specs is not None else conv_specs())
    size = draw(input_sizes(spec))
    assume(not may_be_wrong(spec, size, str(dtype).removeprefix("torch.")))
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


@st.composite
def attention_layers(draw: st.DrawFn, conv: Convolution) -> SelfAttention:
    """A convolution's attention with its heads off their taps and an alpha for each, see ``move_heads``."""
    layer = attention_from_conv(conv)
    move_heads(layer, torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1))))
    return layer
