"""Each operation near a point is its linear map, up to what its row of the table says the map leaves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.certificate.network import pointwise
from conv2attn.convert.certificate.network.interval import UnboundedError
from conv2attn.convert.certificate.network.linearised import Step
from conv2attn.convert.certificate.network.operation import Local, Point
from conv2attn.convert.certificate.network.table import TABLE, bound, near
from conv2attn.convert.errors import ConversionError
from tests.convert.certificate.network.operations import OPERATIONS, SHAPE, Operation, aten, numbers
from tests.convert.certificate.network.points import called, ranges

WIDTHS = (0.3, 1e-3, 1e-7)
KINKED = [
    Operation(aten.relu.default),
    Operation(aten.relu6.default),
    Operation(aten.abs.default),
    Operation(aten.hardtanh.default, (-0.7, 0.3)),
    Operation(aten.leaky_relu.default, (-0.5,)),
    Operation(aten.hardswish.default),
    Operation(aten.hardsigmoid.default),
    Operation(aten.elu.default, (1.7, 1.05)),
    Operation(aten.max_pool2d.default, ([3, 2], [2, 2], [1, 1], [2, 1], True)),
    Operation(aten.adaptive_max_pool2d.default, ([4, 3],)),
    Operation(aten.amax.default, ([1, 3], True)),
]


def within(point: Point, trial: int) -> Iterator[Tensor]:
    """Tensors of a range: its ends, random ends, and random numbers in it."""
    generator = torch.Generator().manual_seed(trial)
    yield from (point.low, point.high)
    for _ in range(4):
        share = torch.rand(point.low.shape, generator=generator, dtype=torch.float64)
        yield point.low + (point.high - point.low) * share
        yield torch.where(share < 0.5, point.low, point.high)


def excess(operation: Operation, width: float, trial: int) -> float | None:
    """The most that a map misses, as a multiple of what the table says it leaves; None where nothing is known."""
    shift = 3.0 * (trial % 3 == 2)  # where hardswish has a kink
    points = [ranges(operation.drawn(n, trial + n) + shift, width, trial) for n in range(len(operation.shapes))]
    call = called(operation, points)
    try:
        bounds = bound(call.map(lambda one: one.hull))  # type: ignore[attr-defined]
        local = near(call)
    except UnboundedError:
        return None
    local, bounds = (one[0] if isinstance(one, list) else one for one in (local, bounds))
    allowed = bounds.error + (0.0 if local.rest is None else local.rest)
    worst = 0.0
    for inputs in zip(*(within(point, trial) for point in points), strict=True):
        apart = [one - point.center for one, point in zip(inputs, points, strict=True)]
        linear = torch.vmap(local.apply)(*(one.unsqueeze(0) for one in apart)).squeeze(0)
        missed = (operation.run(list(inputs)) - local.value - linear).abs()
        own = 64 * 2.0**-52 * (local.value.abs() + linear.abs())  # of this comparison
        worst = max(worst, float(((missed - own) / allowed.clamp(min=1e-300)).max()))
        assert bool(((local.absolute or local.apply)(*map(torch.abs, apart)) >= linear.abs() * (1 - 1e-12)).all())
    return worst


CASES = {**{f"kinked {n}": [one] for n, one in enumerate(KINKED)}, **OPERATIONS}


@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_its_map_up_to_what_it_leaves(name: str) -> None:
    for operation, width in itertools.product(CASES[name], WIDTHS):
        found = [excess(operation, width, trial) for trial in range(8)]
        known = [one for one in found if one is not None]
        assert known or width > 1e-2, operation
        assert max(known, default=0.0) <= 1, (operation, width)


def planted(name: str, change: Any, monkeypatch: pytest.MonkeyPatch, width: float = 0.3) -> float:
    """The excess of an operation of ``CASES`` whose map a fault changes."""
    operation = CASES[name][0]
    kind = operation.target._schema.name.split("::")[1]
    row = TABLE[kind]
    monkeypatch.setitem(TABLE, kind, replace(row, near=lambda call: change(row.near(call))))
    found = [excess(operation, width, trial) for trial in range(8)]
    return max(one for one in found if one is not None)


@pytest.mark.fault
@pytest.mark.parametrize("name", ["kinked 0", "kinked 1", "kinked 2", "kinked 8", "sigmoid", "gelu", "mul", "softmax"])
def test_nine_tenths_of_what_a_map_leaves_is_too_little(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ("sigmoid", "gelu", "softmax"):  # whose bends are reached nowhere near these numbers

        def change(local: Local) -> Local:
            return replace(local, rest=local.rest * 0.02)  # type: ignore[operator, arg-type]
    else:

        def change(local: Local) -> Local:
            return replace(local, rest=local.rest * 0.9)  # type: ignore[operator, arg-type]

    assert planted(name, change, monkeypatch) > 1


@pytest.mark.fault
@pytest.mark.parametrize("name", [name for name in OPERATIONS if not name.startswith("relu")])
def test_a_map_that_is_a_thousandth_too_steep_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def steeper(local: Any) -> Any:
        if isinstance(local, list):
            return [None if one is None else steeper(one) for one in local]
        size = local.absolute or local.apply
        return replace(local, apply=lambda *ts: local.apply(*ts) * 1.001, absolute=lambda *ts: size(*ts) * 1.01)

    assert planted(name, steeper, monkeypatch, width=1e-7) > 1


def stepped(operation: Operation) -> tuple[Step, list[Tensor]]:
    """An operation as a step, and factors of each of its numbers for a column."""
    points = [ranges(operation.drawn(n, n), 1e-7, 0) for n in range(len(operation.shapes))]
    local = near(called(operation, points))
    local = next(one for one in local if one is not None) if isinstance(local, list) else local
    step = Step("here", (), local, local.value.shape)
    starts = [torch.zeros(1, *point.low.shape, dtype=torch.float64, requires_grad=True) for point in points]
    found = step.run(starts)
    slope = numbers(*found.shape, seed=3)
    if not found.requires_grad:
        return step, [slope, *starts]
    return step, [slope, *torch.autograd.grad(found, starts, slope, materialize_grads=True)]


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_a_map_under_vmap_is_its_transpose(name: str) -> None:
    for operation in CASES[name]:
        step, (slope, *back) = stepped(operation)
        step.check_transpose(back, slope)


@pytest.mark.fault
def test_a_gradient_that_torch_has_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = OPERATIONS["select_scatter"][0]
    own = torch.slice_scatter
    monkeypatch.setattr(
        torch,
        "slice_scatter",
        lambda whole, part, dim, at, end: torch.select_scatter(whole, part.squeeze(dim), dim, at),
    )
    step, (slope, *back) = stepped(operation)
    with pytest.raises(ConversionError, match="not the map's transpose"):
        step.check_transpose(back, slope)
    monkeypatch.setattr(torch, "slice_scatter", own)
    step, (slope, *back) = stepped(operation)
    step.check_transpose(back, slope)


@pytest.mark.fault
def test_a_chord_through_the_wrong_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(local: Local) -> Local:
        return replace(local, value=local.value - local.rest)  # type: ignore[operator]

    assert planted("kinked 0", wrong, monkeypatch) > 1


def doubled(center: float, width: float) -> list[Local]:
    """The maps of relu(relu(x)) on a range."""
    low = torch.full(SHAPE, center - width, dtype=torch.float64)
    point = Point(low, low + 2 * width, torch.zeros_like(low), low + width, 0)
    found = []
    for _ in range(2):
        call = called(Operation(aten.relu.default), [point])
        local = near(call)
        found.append(local)
        bounds = bound(call.map(lambda one: one.hull))  # type: ignore[attr-defined]
        point = Point(bounds.low, bounds.high, bounds.error, local.value, 0)
    return found


def test_a_second_rectifier_passes_on_what_the_first_lets_through() -> None:
    """Its range begins at its kink, where the slope is taken in the middle of the range, not at the center."""
    for center in (-1e-3, 0.0, 1e-3):
        first, second = doubled(center, 2e-3)
        passed = first.apply(torch.ones(SHAPE)) * second.apply(torch.ones(SHAPE))
        assert float(passed.min()) > 0.2
    stable = doubled(1.0, 1e-3)
    assert [float(one.apply(torch.ones(SHAPE)).min()) for one in stable] == [1.0, 1.0]


@pytest.mark.fault
def test_a_slope_at_the_center_in_place_of_the_middle_is_caught() -> None:
    """A doubled kink with its center on it: a range [0, 1] whose values all pass, and slope 0 at the center."""
    low = torch.zeros(SHAPE, dtype=torch.float64)
    point = Point(low, low + 1, low, low, 0)
    call = called(Operation(aten.relu.default), [point])
    local = near(call)
    curve = pointwise.clamp(call)
    assert bool((local.apply(low + 1) == 1).all())
    assert not bool(curve.slope(point.center).any())
    missed = curve.function(point.high) - (curve.function(point.center) + curve.slope(point.center))
    assert float(missed.max()) == 1.0  # what a map of slope 0 leaves, where the table says nothing is left
    assert local.rest is None or float(local.rest.max()) < 1e-9
