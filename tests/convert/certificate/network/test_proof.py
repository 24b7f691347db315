"""The test of all ranges: its level, and what would make it pass ranges that are wrong."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import certify_images
from conv2attn.convert.bounds.rounding import gamma
from conv2attn.convert.certificate.network import images, linearised, proof
from conv2attn.convert.certificate.network.linearised import KAPPA, Linearised, Step
from conv2attn.convert.certificate.network.proof import Draws, binomial_tail, plan, share_within, votes_of
from conv2attn.convert.certificate.network.table import near
from tests.convert.certificate.network.operations import Operation, aten, numbers
from tests.convert.certificate.network.points import called, ranges

MANY = 10**7  # numbers of a column, as for ImageNet's networks


def rectified(hypothesis: str = "once", factor: float = 1.0) -> tuple[Linearised, dict[int, Tensor]]:
    """A small network with R times a factor as its ranges, and R."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    program, image = images.program_for(model.eval(), torch.randn(1, 2, 6, 6))
    exact = Linearised(program, image, hypothesis, radius="rows")
    rows = {index: step.tested for index, step in enumerate(exact.steps) if step.tested is not None}
    found = Linearised(program, image, hypothesis, radius=lambda index, *_: factor * rows[index])
    return found, rows


@pytest.mark.parametrize("margin", [16.0, 6.0, 3.5, 2.0])
def test_the_level_is_exact_and_covers_rounding_and_grid(margin: float) -> None:
    share = share_within(margin, MANY)
    cauchy = 2 / math.pi * math.atan(margin**-0.5 + KAPPA)
    assert cauchy + 1e-3 < share < cauchy + 0.02
    columns, votes = plan(margin, MANY, 1e-9)
    assert binomial_tail(columns, share, votes) <= Fraction(1e-9) < binomial_tail(columns, share, votes - 1)
    for count, inside in product(range(1, 5), (Fraction(1, 3), Fraction(5, 8))):
        assert binomial_tail(count, inside, count) == inside**count
        assert binomial_tail(count, inside, 0) == 1


@pytest.mark.fault
def test_numbers_of_single_precision_are_too_coarse_for_any_level() -> None:
    assert share_within(16.0, MANY, dtype=torch.float32) > Fraction(1, 2)


@pytest.mark.fault
def test_ranges_that_are_too_narrow_do_not_pass() -> None:
    """All of them, and a single one among many that are wide."""
    columns, needed = plan(16.0, 10**4, 1e-9)
    for change in (None, 0):
        found, rows = rectified(factor=0.95 if change is None else 64.0)
        step = next(step for step in found.steps if step.tested is not None)
        if change is not None:
            assert step.tested is not None
            step.tested.view(-1)[change] = 0.95 * rows[found.steps.index(step)].view(-1)[change]
        votes, _ = votes_of(found, columns, 16.0, Draws(3))
        failing = sum(int((one < needed).sum()) for one in votes.values())
        assert failing == (1 if change is not None else sum(one.numel() for one in rows.values()))


@pytest.mark.fault
def test_a_range_chosen_after_the_draws_needs_its_share_of_p(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 units with R = 1, no chosen D is below R with p / 20,000 each; hundreds are with p."""
    ones = torch.ones(20_000, dtype=torch.float64)
    columns = Draws(7).added(torch.zeros(72, 20_000, dtype=torch.float64), ones).abs()
    assert float(proof.reach_of_outputs(columns, MANY, 1e-2).min()) >= 1
    tail = proof.binomial_tail
    monkeypatch.setattr(proof, "binomial_tail", lambda *call: tail(*call) / columns.shape[1])
    assert int((proof.reach_of_outputs(columns, MANY, 1e-2) < 1).sum()) > 20


@pytest.mark.fault
def test_numbers_that_are_not_fresh_in_each_round_are_caught() -> None:
    draws = Draws(1)
    nothing = torch.zeros(4, 3, dtype=torch.float64)
    first, second = (draws.added(nothing, torch.ones(3, dtype=torch.float64)) for _ in range(2))
    assert not bool((first == second).any())


@pytest.mark.fault
def test_a_column_whose_own_rounding_is_large_is_told_from_others() -> None:
    """A map that rounds a number 2^40 times as large as what is added behind it."""
    found, _ = rectified(factor=64.0)
    count = 5

    def fine(change: float) -> Tensor:
        def draw(columns: Tensor, scale: Tensor) -> Tensor:
            drawn = torch.ones_like(columns) * scale
            drawn[2] *= change
            return columns + drawn

        return linearised.columns_of(found.steps, count, draw, torch.float64, lambda index, size: None)

    assert fine(1.0).tolist() == [True] * count
    assert fine(2.0**60).tolist() == [True, True, False, True, True]


@pytest.mark.fault
def test_a_backward_pass_that_rounds_is_covered_by_its_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearised, "SUMMED", 1.0)
    (found, _), factors = rectified("any order"), torch.eye(3, dtype=torch.float64)
    slack, back = Linearised._of_backward, Linearised._back

    def short(self: Linearised, step: Step, slope: Tensor) -> list[Tensor]:
        return [one * (1 - 2.0**-50) for one in back(self, step, slope)]

    monkeypatch.setattr(Linearised, "_of_backward", lambda self, step: torch.zeros_like(step.slack))
    exact, _ = found.reach(factors)
    monkeypatch.setattr(Linearised, "_back", short)
    assert bool((found.reach(factors)[0] < exact).all())
    monkeypatch.setattr(Linearised, "_of_backward", slack)
    assert bool((found.reach(factors)[0] >= exact).all())


@pytest.mark.fault
def test_our_own_run_s_rounding_counts() -> None:
    """A sum whose float64 number is off, in a class of programs that round nothing."""
    operation = Operation(aten.linear.default, (numbers(2, 200), None), (1, 200))
    (point,) = (ranges(numbers(1, 200), 0.0, 0) for _ in range(1))
    call = called(operation, [point])
    value = near(call).value
    weight = [[Fraction(float(w)) for w in row] for row in numbers(2, 200)]
    exact = [
        sum((w * Fraction(float(x)) for w, x in zip(row, point.center[0], strict=True)), Fraction()) for row in weight
    ]
    apart = [abs(Fraction(float(v)) - e) for v, e in zip(value[0], exact, strict=True)]
    total = point.center.abs() @ numbers(2, 200).abs().T
    allowed = gamma(200, 2.0**-53) * total[0]
    assert all(0 < one <= Fraction(float(most)) for one, most in zip(apart, allowed, strict=True))


def test_what_hardware_flushes_to_zero_is_within_the_bound() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0**-75)
    image = torch.randn(1, 3, 6, 6)
    (found,) = certify_images(model, image, margins=0).images
    with torch.no_grad():
        plain = model(image)
        torch.set_flush_denormal(True)
        try:
            flushed = model(image)
        finally:
            torch.set_flush_denormal(False)
    assert bool((plain != 0).any())
    assert found.bound is not None
    assert float((plain - flushed).double().abs().max()) <= found.bound
    assert found.bound > 2.0**-149
