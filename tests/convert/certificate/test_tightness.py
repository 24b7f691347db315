"""The tail of the certificate is not far above the worst case, and never below it, in exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from conv2attn.convert import ConvSpec, SelfAttention, SelfAttention2d, attention_from_conv, certify
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds import tail as tails
from conv2attn.proofs.campaign.strategies import conv_specs, convolution_of
from conv2attn.proofs.campaign.values import gain, largest_difference
from tests.exact import exact_difference

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


@settings(max_examples=10)
@given(layers(max_kernel=3, max_channels=2), st.data())
def test_no_input_exceeds_the_tail_at_any_pixel_in_exact_arithmetic(layer: SelfAttention, data: st.DataObject) -> None:
    size = data.draw(st.builds(Size, st.integers(7, 9), st.integers(7, 9)))
    outputs = layer.spec.output_size(size)
    output = tuple(data.draw(st.integers(0, n - 1)) for n in (layer.spec.out_channels, *outputs))
    change = gain(layer, size, output=output)
    x = change.sign().to(layer.weight)
    tail = certify(layer, input_range=(-1, 1)).tail
    with mpmath.workdps(40):
        reached = exact_difference(layer, x, output)
        assert reached <= tail
        assert abs(reached - largest_difference(change)) <= 1e-12 * layer.weight.detach().abs().sum().item()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("side", [2, 3, 7, 11])
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


def test_heads_with_their_own_alpha_stay_within_the_tail() -> None:
    layer = SelfAttention2d(ConvSpec(2, 2, kernel_size=(2, 3), bias=False), alpha=1.0, dtype=torch.float64)
    with torch.no_grad():
        layer.set_positions(alpha=torch.tensor([0.5, 3.0, 1.0, 0.7, 8.0, 2.0]))
    tail = certify(layer, input_range=(-1, 1)).tail
    worst = max(largest_difference(gain(layer, (16, 16), output=(o, 7, 7))) for o in (0, 1))
    assert THIRD * tail <= worst <= tail
