"""The tail is the smaller of its two formulas for each pair of channels, evaluated with 40 digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from mpmath import mp, mpf
from torch import nn

from conv2attn.convert import ConvSpec, SelfAttention1d, SelfAttention2d
from conv2attn.convert.bounds.rounding import SMALLEST_ALPHA
from conv2attn.convert.bounds.tail import (
    absolute_products,
    softmax_tail,
    tail_fraction,
    tail_per_unit,
)

DIGITS = 40
CLOSE = 1e-8  # of every head's tail by itself; a few times what the code adds for its own rounding
SPEC = ConvSpec(4, 4, kernel_size=(3, 2), dilation=(1, 3), groups=2, bias=False)


def layer_of(spec: ConvSpec, alphas: Sequence[float]) -> SelfAttention2d:
    torch.manual_seed(1)
    layer = SelfAttention2d(spec, alpha=alphas[0], dtype=torch.float64)
    with torch.no_grad():
        layer.set_positions(alpha=list(alphas) * (spec.num_heads // len(alphas)))
        layer.weight[0].abs_()  # neighbours of one sign: what they give each other cancels
    return layer


def head_changes(spec: ConvSpec, alphas: Sequence[float]) -> tuple[list[list[mpf]], list[mpf], list[mpf]]:
    """For each head: u_h(z) on enough of Z^2, 1 - P_h, and tau_h."""
    margin = math.ceil(math.sqrt(60 / min(alphas)))
    spans = [spec.dilation[axis] * (spec.kernel_size[axis] - 1) for axis in (0, 1)]
    changes, outside, tails = [], [], []
    for alpha, offset in zip(alphas, spec.tap_offsets, strict=True):
        target = offset[0] + spec.middle[0], offset[1] + spec.middle[1]
        theta = mp.jtheta(3, 0, mp.exp(-mpf(alpha)))
        rows, columns = (
            {z: mp.exp(-mpf(alpha) * (z - target[axis]) ** 2) / theta for z in range(-margin, spans[axis] + margin + 1)}
            for axis in (0, 1)
        )
        changes.append([rows[i] * columns[j] - ((i, j) == target) for i in rows for j in columns])
        inside = mp.fsum(rows[i] * columns[j] for i in range(spans[0] + 1) for j in range(spans[1] + 1))
        outside.append(1 - inside)
        tails.append(1 - theta**-2)
    return changes, outside, tails


def formulas(layer: SelfAttention2d, varies: Sequence[float]) -> list[tuple[mpf, mpf]]:
    """For each output channel: the tail, and the sum of every head's by itself."""
    spec, (changes, outside, tails) = layer.spec, head_changes(layer.spec, layer.alpha.tolist())
    per_group = spec.in_channels // spec.groups
    results = []
    for o, taps in enumerate(layer.weight.detach().flatten(2).tolist()):
        first = o // (spec.out_channels // spec.groups) * per_group
        smaller = every = mpf(0)
        for osc, weights in zip(varies[first : first + per_group], taps, strict=True):
            heads = [mpf(w) for w in weights]
            alone = mp.fsum(tau * abs(w) for tau, w in zip(tails, heads, strict=True))
            moved = mp.fsum(abs(mp.fdot(heads, at_z)) for at_z in zip(*changes, strict=True))
            lost = mp.fsum(share * abs(w) for share, w in zip(outside, heads, strict=True))
            smaller += osc * min(alone, (moved + lost) / 2)
            every += osc * alone
        results.append((smaller, every))
    return results


@pytest.mark.parametrize(
    "alphas", [(0.25,), (0.9,), (3.0,), (8.0,), (0.25, 5.0, 1.0)], ids=lambda alphas: "-".join(map(str, alphas))
)
def test_the_tail_is_its_formula(alphas: tuple[float, ...]) -> None:
    layer, varies = layer_of(SPEC, alphas), [1.0, 3.0, 0.5, 2.0]
    found = softmax_tail(layer.values(), torch.tensor(varies, dtype=torch.float64)).tolist()
    with mp.workdps(DIGITS):
        for value, (tail, every) in zip(found, formulas(layer, varies), strict=True):
            assert tail <= value <= tail + CLOSE * every


@pytest.mark.parametrize(
    ("spec", "alpha"), [(ConvSpec(2, 3, kernel_size=(1, 1), bias=False), 1.0), (SPEC, 0.24), (SPEC, 0.01)]
)
def test_a_single_head_or_a_flat_one_has_its_own_tail_alone(spec: ConvSpec, alpha: float) -> None:
    layer = layer_of(spec, [alpha])
    found = softmax_tail(layer.values(), torch.ones(spec.in_channels, dtype=torch.float64)).tolist()
    with mp.workdps(DIGITS):
        tau = 1 - mp.jtheta(3, 0, mp.exp(-mpf(alpha))) ** -2
        for value, taps in zip(found, layer.weight.detach().flatten(1).tolist(), strict=True):
            every = tau * mp.fsum(map(abs, taps))
            assert every <= value <= every * (1 + CLOSE)


@pytest.mark.parametrize("alpha", [0.01, 1.0, 40.0, 700.0, 744.0, 800.0])
def test_the_share_that_misses_is_rounded_up_also_where_it_vanishes(alpha: float) -> None:
    with mp.workdps(400):
        beside = mp.fsum(mp.exp(-mpf(alpha) * n * n) for n in range(1, 1 + math.ceil(math.sqrt(900 / alpha))))
        for axes in (1, 2, 3):
            exact, found = 1 - (1 + 2 * beside) ** -axes, tail_fraction(alpha, axes=axes)
            assert exact < found <= exact * (1 + mpf(2) ** -29) + axes * mpf(2) ** -999
            assert found > axes * 2.0**-1000
    assert tail_fraction(alpha) == tail_fraction(alpha, axes=2)


def test_only_attention_flatter_than_a_limit_may_miss_with_all_it_has() -> None:
    assert tail_fraction(0.999 * SMALLEST_ALPHA) == 1
    assert tail_fraction(SMALLEST_ALPHA) < 1 == tail_fraction(SMALLEST_ALPHA, axes=3)


def test_what_an_input_that_varies_by_one_can_miss_is_rounded_up() -> None:
    layer = layer_of(SPEC, [1.0])
    largest = Fraction(float(softmax_tail(layer.values(), torch.ones(4, dtype=torch.float64)).max()))
    assert Fraction(1, 2**31) < Fraction(tail_per_unit(layer.values())) / largest - 1 < Fraction(1, 2**29)


@pytest.mark.parametrize("terms", [4096, 4097])
def test_sums_of_absolute_products_count_a_rounding_for_each_term_and_two_more(terms: int) -> None:
    """Of terms that a sum rounds nowhere, so that what is added shows to the last bit."""
    spec = ConvSpec(terms, 1, kernel_size=(1, 1), bias=False)
    weight = torch.ones(1, terms, 1, 1, dtype=torch.float64)
    weight[0, 4095:] /= terms - 4095
    layer = SelfAttention2d(spec, weight=nn.Parameter(weight), alpha=1.0)
    (found,) = absolute_products(layer.values(), layer.weight, torch.ones(terms, dtype=torch.float64))
    unit = Fraction(1, 2**53)
    expected = 4096 * (1 + (terms + 2) * unit / (1 - (terms + 2) * unit))
    assert abs(Fraction(found.item()) - expected) <= 4096 * unit


def test_sums_of_absolute_products_count_what_may_be_taken_for_zero() -> None:
    """Twice the smallest normal number for each product, and as much times the input; nothing where the input is 0."""
    spec = ConvSpec(4, 2, kernel_size=(1, 3), groups=2, bias=False)
    layer = SelfAttention2d(spec, weight=nn.Parameter(torch.zeros(2, 2, 1, 3)), alpha=1.0)
    inputs = torch.tensor([0.0, 3.0, 0.25, 0.5]).double(), torch.tensor([1.0, 0.0, 0.0, 0.0]).double()
    smallest = 2.0**-1022
    found = [sums.tolist() for sums in absolute_products(layer.values(), layer.weight, *inputs)]
    assert found == [[2 * smallest * 3 * 4, 2 * smallest * 3 * 2.75], [2 * smallest * 3 * 2, 0.0]]


def test_the_tail_counts_what_may_be_taken_for_zero_for_each_head_and_point() -> None:
    spec = ConvSpec(2, 1, kernel_size=(3, 2), bias=False)
    layer = SelfAttention2d(spec, weight=nn.Parameter(torch.zeros(1, 2, 3, 2, dtype=torch.float64)), alpha=1.0)
    points = (3 + 2 * 7) * (2 + 2 * 7)
    (found,) = softmax_tail(layer.values(), torch.tensor([1.0, 3.0], dtype=torch.float64)).tolist()
    assert found == pytest.approx(4 * 2 * 2.0**-1022 * 6 * (1 + points), rel=CLOSE, abs=0)


@pytest.mark.parametrize("kernel_size", [(1, 1), (1, 2)])
def test_the_tail_of_a_weight_is_not_rounded_to_nothing_where_the_product_is_too_small_for_a_number(
    kernel_size: tuple[int, int],
) -> None:
    layer = layer_of(ConvSpec(1, 1, kernel_size=kernel_size, bias=False), [700.0])
    with torch.no_grad():
        layer.weight.fill_(1e-24)
    assert float(softmax_tail(layer.values(), torch.ones(1, dtype=torch.float64))) > Fraction(1e-24) * Fraction(
        tail_fraction(700.0)
    )


def test_a_subnormal_weight_may_be_missing_twice_where_heads_give_each_other_something() -> None:
    smallest, found = 2.0**-1022, []
    for last in (0.0, smallest / 2**20):
        weight = torch.tensor([64 * smallest, 64 * smallest, last], dtype=torch.float64).view(1, 1, 3)
        layer = SelfAttention1d(ConvSpec(1, 1, kernel_size=(3,), bias=False), weight=nn.Parameter(weight), alpha=1.0)
        found.append(softmax_tail(layer.values(), torch.ones(1, dtype=torch.float64)).item())
    assert 2 * smallest < found[1] - found[0] < 2.5 * smallest
