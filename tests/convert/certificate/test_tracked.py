"""Tensors without values, how they change, and which of them may share memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conv2attn.convert.certificate.propagation.interval import Interval
from conv2attn.convert.certificate.propagation.tracked import (
    Tracked,
    constant,
    replaced,
    shares_memory,
    tensors_in,
    tracked_in,
)


def fake(*size: int) -> Tensor:
    return torch.empty(*size or (2, 3), device="meta")


def replace_data(by: Tensor) -> Callable[[Tensor], None]:
    def change(tensor: Tensor) -> None:
        tensor.data = by

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.add_(1),
        lambda tensor: tensor.t_(),
        lambda tensor: tensor.resize_(1, 3),
        replace_data(fake(1, 3)),
        replace_data(fake(4, 3)),
        replace_data(fake(3, 2).t()),
    ],
)
def test_a_tensor_that_is_written_to_or_laid_out_anew_has_changed_until_it_is_seen(
    change: Callable[[Tensor], object],
) -> None:
    tracked = Tracked(fake(), Interval.of(0, 1))
    assert not tracked.has_changed
    change(tracked.fake)
    assert tracked.has_changed
    tracked.seen()
    assert not tracked.has_changed


def test_a_write_makes_all_unknown_that_may_share_its_memory_and_tells_whether_one_of_them_outlives_the_call() -> None:
    a, b, c, other = (Tracked(fake(), Interval.of(0, 1)) for _ in range(4))
    b.joins(a)
    c.joins(b)
    a.joins(c)
    assert a.family is b.family is c.family
    assert [member is one for member, one in zip(a.family, (a, b, c), strict=True)] == [True] * 3
    assert not b.changed(Interval.of(2, 3))
    assert (float(b.interval.low), b.lost) == (2, None)
    for lost in (a, c):
        assert not lost.interval.is_bounded
        assert lost.lost == "it reads a tensor whose memory was written to under another name"
    assert other.interval.is_bounded
    c.outlives = True
    assert b.changed(Interval.of(2, 3))
    assert not other.changed(Interval.of(2, 3))


def test_a_constant_has_the_bounds_of_its_values_which_what_is_written_does_not_reach() -> None:
    known = constant(torch.tensor([3.0, -1, 2]))
    assert (float(known.interval.low), float(known.interval.high), float(known.interval.error)) == (-1, 3, 0)
    assert (known.fake.device.type, known.fake.shape, known.lost, known.outlives) == ("meta", (3,), None, True)
    assert known.changed(Interval.of(0, 1))
    assert known.real is None
    assert constant(torch.ones(3), fake(3)).changed(Interval.of(0, 1))


@pytest.mark.parametrize(
    "odd", [torch.empty(0), torch.empty(0, dtype=torch.complex64), torch.ones(2) * 1j, torch.tensor([1, torch.nan])]
)
def test_a_constant_without_a_least_value_is_not_bounded(odd: Tensor) -> None:
    known = constant(odd)
    assert not known.interval.is_bounded
    assert known.lost == "its values are not finite"
    assert known.real is not None


def test_tensors_are_found_and_replaced_in_lists_tuples_dictionaries_and_slices() -> None:
    a, b, c = torch.ones(1), torch.ones(2), constant(torch.ones(3))
    values = (a, [1, {"x": b, "y": c}], slice(a, None))
    assert [len(tensor) for tensor in tensors_in(values)] == [1, 2, 1]
    assert [tracked is c for tracked in tracked_in(values)] == [True]
    assert replaced(values, Tensor, len) == (1, [1, {"x": 2, "y": c}], slice(1, None))


def test_views_share_memory_and_others_do_not() -> None:
    a, b = fake(), fake()
    assert shares_memory(a[:1], [b, a])
    assert not shares_memory(a, [b])
    assert not shares_memory(b, [a])
    assert not shares_memory(a, [])
