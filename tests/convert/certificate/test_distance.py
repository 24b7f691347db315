"""No input takes a trained layer further from a convolution than the bound, and the worst ones come near it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConvSpec, SelfAttention1d, SelfAttention2d, attention_from_conv
from conv2attn.convert.certificate.distance import (
    Window,
    distance_from_convolution,
    kernel_at,
    kernel_difference,
)
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.spec import CONVOLUTIONS, Convolution
from tests.convert.certificate.trained import CASES, ROUNDING, trained

CLOSE = 1e-9  # far above what sums in double precision, and the slack for them, make of the formula
RANGES = [(-1.0, 1.0), (0.0, 3.0), (2.0, 2.5)]


def worst_inputs(conv: nn.Conv2d, layer: SelfAttention, low: float, high: float) -> Tensor:
    """Random inputs, and those that push an output as far as a linear layer can be pushed."""
    x = torch.rand(8, 3, 9, 11, dtype=torch.float64) * (high - low) + low
    found = [x, torch.where(x > (low + high) / 2, high, low)]
    for row, column in ((0, 0), (1, 2), (-1, -1)):
        one = x[:1].clone().requires_grad_(True)
        (layer(one) - conv(one))[0, 0, row, column].backward()
        assert one.grad is not None
        found.append(torch.where(one.grad > 0, high, low))
    return torch.cat(found)


@pytest.mark.parametrize("case", CASES)
def test_no_input_is_beyond_the_distance(case: str) -> None:
    conv, layer = trained(case)
    for ends in RANGES:
        bound = distance_from_convolution(layer, input_range=ends, weight=conv.weight, bias=conv.bias)
        x = worst_inputs(conv, layer, *ends)
        with torch.no_grad():
            apart = (layer(x) - conv(x)).abs().amax((0, 2, 3))
        assert bool((apart <= torch.tensor(bound.per_channel) + ROUNDING).all())
        assert bound.bound == max(bound.per_channel)
        if case == "padded":
            assert float(apart[0]) > bound.per_channel[0] / 4


def test_what_has_no_known_distance_is_refused() -> None:
    conv, layer = trained("padded")
    for other in (conv.weight[:, :1], torch.zeros(6, 3, 3, 4), torch.zeros(6, 3, 4, 3)):
        with pytest.raises(ConversionError, match="must have a weight"):
            distance_from_convolution(layer, input_range=(-1, 1), weight=other, bias=conv.bias)
    bare, moved_bare = trained("grouped")
    with pytest.raises(ConversionError, match="bias as the layer"):
        distance_from_convolution(moved_bare, input_range=(-1, 1), weight=bare.weight, bias=torch.zeros(6))
    with pytest.raises(ConversionError, match="bias as the layer"):
        distance_from_convolution(layer, input_range=(-1, 1), weight=conv.weight)
    content = layer.add_content(2)
    assert distance_from_convolution(layer, input_range=(-1, 1)).bound > 0  # content that is off
    with torch.no_grad():
        content.query_weight.fill_(1.0)
    with pytest.raises(ConversionError, match="of content terms"):
        distance_from_convolution(layer, input_range=(-1, 1))


# The formula, offset by offset

GEOMETRIES: dict[int, dict[str, Any]] = {
    1: {"kernel_size": 4, "dilation": 2, "padding": 1},
    2: {"kernel_size": (2, 3), "dilation": (3, 1), "padding": (0, 2)},
    3: {"kernel_size": (1, 2, 2), "stride": 2, "bias": False},
}
REACH = {1: 20, 2: 20, 3: 14}  # pixels: more than any head below looks
LOW, HIGH = torch.tensor([-1.0, 0.5, 2.0, -3.0]).double(), torch.tensor([0.5, 1.5, 2.0, 4.0]).double()
Offset = tuple[int, ...]


def moved(axes: int) -> tuple[Convolution, SelfAttention]:
    """A convolution of two groups, and a layer whose heads left its taps, each in its own way."""
    torch.manual_seed(axes)
    conv = CONVOLUTIONS[axes, False](4, 6, groups=2, dtype=torch.float64, **GEOMETRIES[axes])
    layer = attention_from_conv(conv)
    with torch.no_grad():
        layer.set_positions(alpha=torch.empty(layer.num_heads).uniform_(0.4, 3.0))
        layer.set_positions(centers=layer.centers + (torch.randn_like(layer.centers)))
        layer.weight.mul_(torch.rand_like(layer.weight) + 0.5)
        if layer.bias is not None:
            layer.bias.add_(torch.randn_like(layer.bias))
    return conv, layer


def looks(layer: SelfAttention) -> tuple[list[Offset], Tensor]:
    """Offsets from the query, and what each head gives to each of them: [heads, offsets]."""
    reach = REACH[layer.spec.axes]
    offsets = list(product(range(-reach, reach + 1), repeat=layer.spec.axes))
    away = torch.tensor(offsets).double() - layer.centers.detach()[:, None]
    return offsets, (-layer.alpha.detach()[:, None] * away.square().sum(-1)).softmax(-1)


def formula(
    layer: SelfAttention,
    read: dict[Offset, Tensor],
    keys: set[Offset],
    ends: tuple[Tensor, Tensor] = (LOW, HIGH),
) -> Tensor:
    """sum_c |m_c||s| + osc_c / 2 (sum_z |D(z)| + sum_h (1 - P_h)|W_h|): [out_channels].

    Args:
        layer: The layer.
        read: R at the offsets that the convolution reads: [out_channels, in_channels / groups] each.
        keys: The offsets that are keys of every query.
        ends: Lowest and highest value of each channel.
    """
    weight, (offsets, given) = layer.weight.detach().flatten(2), looks(layer)
    inside = given[:, [offset in keys for offset in offsets]].sum(-1)
    kernel = weight @ given
    for offset, taps in read.items():
        kernel[..., offsets.index(offset)] -= taps
    each = kernel.abs().sum(-1) + weight.abs() @ (1 - inside)
    shift = (weight.sum(-1) - torch.stack(list(read.values())).sum(0)).abs()
    halves, middles = ((ends[1] - ends[0]) / 2).split(2), ((ends[1] + ends[0]) / 2).abs().split(2)
    rows = (slice(0, 3), slice(3, 6))
    return torch.cat([each[row] @ half + shift[row] @ at for row, half, at in zip(rows, halves, middles, strict=True)])


def box(first: Sequence[int], last: Sequence[int]) -> list[Offset]:
    """The offsets between two."""
    return list(product(*(range(low, high + 1) for low, high in zip(first, last, strict=True))))


@pytest.mark.parametrize("axes", GEOMETRIES)
def test_the_distance_is_its_formula(axes: int) -> None:
    conv, layer = moved(axes)
    taps = [tuple(map(int, tap)) for tap in layer.spec.tap_offsets]
    read = dict(zip(taps, conv.weight.detach().flatten(2).unbind(-1), strict=True))
    keys = set(box([min(places) for places in zip(*taps, strict=True)], [max(p) for p in zip(*taps, strict=True)]))
    ends = (LOW.clamp(max=0), HIGH.clamp(min=0)) if layer.spec.adds_zeros else (LOW, HIGH)
    expected = formula(layer, read, keys, ends)
    if layer.bias is not None and conv.bias is not None:
        expected = expected + (layer.bias - conv.bias).detach().abs()
    found = distance_from_convolution(layer, input_range=(LOW, HIGH), weight=conv.weight, bias=conv.bias)
    assert list(found.per_channel) == pytest.approx(expected.tolist(), rel=CLOSE)
    assert found.bound == max(found.per_channel)


@pytest.mark.parametrize(("axes", "beyond"), [(1, 0), (1, 12), (2, 4), (3, 12)])
def test_the_distance_of_any_other_kernel_is_its_formula(axes: int, beyond: int) -> None:
    """One that reads more than the queries have for keys, at places of its own."""
    _, layer = moved(axes)
    lengths = [4 + beyond, 3, 2][:axes]
    first = tuple(-2 - axis - beyond // 2 for axis in range(axes))
    window = Window(torch.randn(6, 2, *lengths).double(), first)
    offsets = box(first, window.last)
    assert offsets[-1] == tuple(start + length - 1 for start, length in zip(first, lengths, strict=True))
    keys = (-1, -2, -2)[:axes], (2, 0, 1)[:axes]
    expected = formula(
        layer, dict(zip(offsets, window.kernel.flatten(2).unbind(-1), strict=True)), keys=set(box(*keys))
    )
    found = kernel_difference(layer.values(), window, low=LOW, high=HIGH, keys=keys)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=CLOSE)
    outside = [
        taps
        for offset, taps in zip(offsets, window.kernel.abs().flatten(2).unbind(-1), strict=True)
        if offset not in box(*keys)
    ]
    twice = torch.stack(outside).sum(0)
    more = torch.cat([twice[:3] @ (HIGH - LOW)[:2] / 2, twice[3:] @ (HIGH - LOW)[2:] / 2])
    padded = kernel_difference(layer.values(), window, low=LOW, high=HIGH, keys=keys, padded=True)
    assert padded.tolist() == pytest.approx((expected + more).tolist(), rel=CLOSE)


@pytest.mark.parametrize("axes", GEOMETRIES)
def test_the_kernel_of_a_layer_is_what_its_heads_give_to_each_offset(axes: int) -> None:
    _, layer = moved(axes)
    first, last = (-3, 0, 1)[:axes], (1, 2, 1)[:axes]
    kernel, (offsets, given) = kernel_at(layer.values(), first, last), looks(layer)
    expected = layer.weight.detach().flatten(2) @ given[:, [offsets.index(offset) for offset in box(first, last)]]
    assert kernel.shape == (6, 2, *(5, 3, 1)[:axes])
    assert torch.allclose(kernel.flatten(2), expected, rtol=CLOSE, atol=CLOSE)


def test_where_heads_reach_over_too_much_every_weight_counts_and_half_of_what_the_input_varies() -> None:
    conv, layer = moved(2)
    with torch.no_grad():
        layer.set_positions(alpha=2.0**-16)
    found = distance_from_convolution(layer, input_range=(-2, 2), weight=conv.weight, bias=conv.bias)
    weight, other = layer.weight.detach().abs(), conv.weight.detach().abs()
    assert layer.bias is not None
    assert conv.bias is not None
    apart = (layer.bias - conv.bias).detach().abs()
    expected = 2 * (2 * weight + other).sum((1, 2, 3)) + apart
    assert list(found.per_channel) == pytest.approx(expected.tolist(), rel=CLOSE)
    with pytest.raises(ConversionError, match="reach over too many pixels"):
        kernel_at(layer.values(), (0, 0), (1, 1))


def test_learned_tables_have_no_kernel_and_no_distance() -> None:
    layer = SelfAttention2d(ConvSpec(1, 1, kernel_size=(2, 2)))
    layer.set_axis_scores(torch.zeros(4, 7), torch.zeros(4, 7))
    with pytest.raises(ConversionError, match="learned tables of scores"):
        distance_from_convolution(layer, input_range=(-1, 1))
    with pytest.raises(ConversionError, match="go by learned tables"):
        kernel_at(layer.values(), (0, 0), (1, 1))


def test_what_sums_in_double_precision_may_lose_is_all_that_is_left_of_one_hot_attention() -> None:
    """1e-12 of both kernels, for what an input varies and for its middle."""
    conv = nn.Conv2d(2, 3, (2, 3), bias=False, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.fill_(0.75)
    found = distance_from_convolution(attention_from_conv(conv), input_range=(2.0, 5.0), weight=conv.weight)
    assert list(found.per_channel) == pytest.approx([1e-12 * 2 * 12 * 0.75 * (1.5 + 3.5)] * 3, rel=1e-3, abs=0)


def test_keys_that_begin_with_the_kernel_or_end_with_it_count_as_far_as_both_go() -> None:
    """A kernel of five pixels, of which the keys are the first two, or the last two and more."""
    layer = SelfAttention1d(ConvSpec(1, 1, kernel_size=(1,), bias=False), alpha=1.0, dtype=torch.float64)
    window = Window(torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], dtype=torch.float64).view(1, 1, 5), (-2,))
    low, high = torch.tensor([-1.0]).double(), torch.tensor([1.0]).double()
    for first, last, outside in (
        (-2, -1, 28.0),
        (1, 5, 7.0),
        (-5, -2, 30.0),
    ):
        keys = (first,), (last,)
        bare, padded = (
            float(kernel_difference(layer.values(), window, low=low, high=high, keys=keys, padded=padded))
            for padded in (False, True)
        )
        assert padded - bare == pytest.approx(outside, rel=CLOSE, abs=CLOSE)


@pytest.mark.parametrize(
    ("where", "value"), [("the layer's weight", math.nan), ("the weight", math.inf), ("the bias", -math.inf)]
)
def test_numbers_that_are_not_finite_leave_no_distance(where: str, value: float) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 2, dtype=torch.float64))
    assert layer.bias is not None
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    changed = {"the layer's weight": layer.weight, "the weight": weight, "the bias": bias}[where]
    with torch.no_grad():
        changed.view(-1)[0] = value
    for ends in ((-1, 1), (0, 0)):
        found = distance_from_convolution(layer, input_range=ends, weight=weight, bias=bias)
        assert found.bound == math.inf
        assert found.per_channel[0] == math.inf
        assert found.per_channel[1] < CLOSE


@pytest.mark.parametrize("alpha", [2.0, 1e9, 1e15])
def test_probabilities_are_those_of_exact_scores_however_large_alpha_is(alpha: float) -> None:
    """A head between two pixels shares its attention by a difference of scores that are large themselves."""
    layer = attention_from_conv(nn.Conv1d(1, 1, 2, bias=False, dtype=torch.float64), alpha=64.0)
    layer.set_positions(alpha=alpha)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[0.0, 1.0]]]))
    for part in range(1, 8):
        layer.set_positions(centers=[[0.0], [0.5 - part / 7 / alpha]])
        center = mpmath.mpf(layer.centers[1, 0].item())
        found = kernel_at(layer.values(), (-3,), (4,)).flatten().tolist()
        with mpmath.workdps(60):
            scores = [mpmath.exp(-alpha * ((z - center) ** 2 - center**2)) for z in range(-9, 11)]
            exact = [score / mpmath.fsum(scores) for score in scores[6:14]]
        apart = max(abs(one - other) for one, other in zip(found, exact, strict=True))
        assert apart <= 1e-13  # of scores of at most 45, and of 20 exponentials, in double precision
