"""A table along one axis is a softmax around each target, and its blocks leave out exact zeros only."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from conv2attn.convert.bounds.rounding import EXP_ULPS, NEGLIGIBLE, gamma, unit_roundoff
from conv2attn.convert.engines.factored import Axis, Table, without_far_keys, without_negligible

DTYPES = (torch.float32, torch.float64)
CPU = torch.device("cpu")


def band(queries: int, *, stride: int = 1, width: int = 7) -> Tensor:
    """A table of small integers whose query q reads keys stride * q to stride * q + width."""
    offsets = torch.arange(stride * (queries - 1) + width) - stride * torch.arange(queries).unsqueeze(1)
    return torch.where((offsets >= 0) & (offsets < width), offsets + 1, 0).float()


@pytest.mark.parametrize("center", [0.0, -2.0, 0.25, 300.0])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 30.0])
def test_each_row_of_a_table_is_a_softmax_around_its_target(alpha: float, center: float) -> None:
    found = Axis(keys=7, queries=4, start=1, stride=2, first=0, step=1, pixels=7).probabilities(alpha, center, CPU)
    relative = math.expm1(4 * unit_roundoff(torch.float64) * alpha * (7 + abs(center)) ** 2)
    relative += gamma(4 * EXP_ULPS + 7, unit_roundoff(torch.float64))
    for number, row in enumerate(found.tolist()):
        scores = [-alpha * (key - (1 + 2 * number + center)) ** 2 for key in range(7)]
        powers = [math.exp(score - max(scores)) for score in scores]
        for observed, power in zip(row, powers, strict=True):
            assert abs(observed - power / math.fsum(powers)) <= 4 * relative * power / math.fsum(powers)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("queries", "stride", "blocks"), [(64, 1, 1), (65, 1, 1), (200, 1, 7), (130, 2, 5)])
def test_blocks_leave_out_exact_zeros_only(queries: int, stride: int, blocks: int, axis: int) -> None:
    probabilities = band(queries, stride=stride)
    made, whole = Table.of(probabilities.split(32)), Table.whole(probabilities)
    assert len(made.parts) == blocks
    size = [2, 3, 2]
    size[axis] = probabilities.shape[1]
    x = torch.randint(-8, 9, (2, 3, *size)).float()
    expected = torch.einsum("qk,...k->...q", probabilities, x.movedim(axis + 2, -1)).movedim(-1, axis + 2)
    assert torch.equal(made.along(x, axis), expected)
    assert torch.equal(whole.along(x, axis), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_negligible_probabilities_are_those_below_their_limit(dtype: torch.dtype) -> None:
    limit = torch.tensor(NEGLIGIBLE * unit_roundoff(dtype), dtype=dtype)
    below = torch.nextafter(limit, torch.zeros((), dtype=dtype))
    found = without_negligible(torch.stack([limit, below, 2 * limit, below / 1024, torch.ones((), dtype=dtype)]))
    assert found.tolist() == [float(limit), 0, float(2 * limit), 0, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_far_keys_are_those_that_weigh_less_than_half_of_what_may_be_left_out_on_their_side(dtype: torch.dtype) -> None:
    u = unit_roundoff(dtype)
    rows = torch.tensor(
        [[0.25, 0.25, 1 / u, 0.25, 0.125], [31 / 64, 0, 1 / u, 0, 63 / 128], [0.49, 0, 1 / u, 0, 0.49]],
        dtype=torch.float64,
    )
    near = torch.tensor([[0, 0.25, 1 / u, 0, 0], [0, 0, 1 / u, 0, 63 / 128], [0, 0, 1 / u, 0, 0]], dtype=torch.float64)
    rows, near = rows * u, near * u
    assert torch.equal(without_far_keys(rows, dtype), near)
    assert torch.equal(torch.func.vmap(lambda row: without_far_keys(row, dtype))(rows.unsqueeze(0))[0], rows)
