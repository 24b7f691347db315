"""The tail of the certificate is not far above the worst case, and never below it, in exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from conv2attn.convert import ConvSpec, SelfAttention, attention_from_conv, certify
from conv2attn.convert.bounds import tail as tails
from conv2attn.convert.size import Size
from conv2attn.proofs.evidence.strategies import conv_specs, convolution_of
from conv2attn.proofs.evidence.worst_case import gain, largest_difference

THIRD = 1 / 3


def interior(spec: ConvSpec, alpha: float) -> tuple[Size, tuple[int, int]]:
    """A size and an output far from its borders: what lies outside gets less than exp(-8) of the attention."""
    margin = math.ceil(math.sqrt(8 / alpha)) + max(map(max, spec.pads))
    steps = [math.ceil(margin / stride) for stride in spec.stride]
    size = Size(
        *(2 * steps[axis] * spec.stride[axis] + spec.dilation[axis] * spec.kernel_size[axis] for axis in (0, 1))
    )
    return size, (steps[0], steps[1])


def layers(**limits: Any) -> st.SearchStrategy[SelfAttention]:
    @st.composite
    def drawn(draw: st.DrawFn) -> SelfAttention:
        spec = replace(draw(conv_specs(**limits)), bias=False)
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
        conv = convolution_of(spec, dtype=torch.float64)
        drawn = torch.randn(conv.weight.shape, generator=generator, dtype=torch.float64)
        shift = draw(st.sampled_from([0.0, 1.0, 4.0]))  # random signs, mostly one sign, all one sign
        with torch.no_grad():
            conv.weight.copy_(drawn + shift)
        return attention_from_conv(conv, alpha=draw(st.floats(0.5, 8)))

    return drawn()


@settings(max_examples=150)
@given(layers(max_kernel=5, max_channels=3))
def test_the_worst_case_reaches_a_third_of_the_tail(layer: SelfAttention) -> None:
    size, (row, column) = interior(layer.spec, layer.alpha.min().item())
    assume(layer.spec.output_size(size).rows > row)
    certificate = certify(layer, input_range=(-1, 1))
    worst = [
        largest_difference(gain(layer, size, output=(channel, row, column)))
        for channel in range(layer.spec.out_channels)
    ]
    assert THIRD * certificate.tail <= max(worst) <= certificate.tail


@pytest.mark.parametrize(("side", "alpha"), [(2, 0.5), (3, 8.0), (7, 2.0), (11, 1.0)])
def test_a_box_filter_reaches_nearly_two_thirds_of_its_tail(side: int, alpha: float) -> None:
    """Each head gives its neighbours what they give back: counted one by one, the bound is too large by the side."""
    conv = nn.Conv2d(1, 1, side, bias=False, dtype=torch.float64)
    nn.init.ones_(conv.weight)
    layer = attention_from_conv(conv, alpha=alpha)
    size, (row, column) = interior(layer.spec, alpha)
    ratio = largest_difference(gain(layer, size, output=(0, row, column))) / certify(layer, input_range=(-1, 1)).tail
    assert 0.6 < ratio < 0.75
    assert certify(layer, input_range=(-1, 1)).tail <= 2 * side**2 * tails.tail_fraction(alpha) * (1 + 2**-20)


@pytest.mark.fault
def test_a_tail_that_forgets_the_lattice_outside_the_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    conv = nn.Conv2d(1, 1, 3, bias=False, dtype=torch.float64)
    nn.init.ones_(conv.weight)
    layer = attention_from_conv(conv, alpha=1.0)
    worst = largest_difference(gain(layer, (15, 15), output=(0, 6, 6)))
    assert worst <= certify(layer, input_range=(-1, 1)).tail
    honest = tails._head_changes

    def inside_only(*kernel: Any) -> tuple[torch.Tensor, float]:
        changes, beyond = honest(*kernel)
        side = math.isqrt(changes.shape[1])
        margin = (side - 3) // 2
        kept = torch.zeros(side, side, dtype=changes.dtype)
        kept[margin:-margin, margin:-margin] = 1
        return changes * kept.flatten(), beyond

    monkeypatch.setattr(tails, "_head_changes", inside_only)
    monkeypatch.setattr(tails, "_outside_of_the_kernel", lambda *kernel: (0.0,) * 9)
    assert worst > certify(layer, input_range=(-1, 1)).tail
