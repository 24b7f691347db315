"""The blocks of a table along one axis leave out exact zeros only; far keys are those that weigh next to nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conv2attn.convert.bounds.rounding import NEGLIGIBLE, unit_roundoff
from conv2attn.convert.engines.axes import Table, without_far_keys, without_negligible


def band(queries: int, *, stride: int = 1, width: int = 7) -> Tensor:
    """A table of small integers whose query q reads keys stride * q to stride * q + width."""
    offsets = torch.arange(stride * (queries - 1) + width) - stride * torch.arange(queries).unsqueeze(1)
    return torch.where((offsets >= 0) & (offsets < width), offsets + 1, 0).float()


@pytest.mark.parametrize(
    ("queries", "stride", "blocks", "axis"),
    [(64, 1, 1, 2), (65, 1, 1, 1), (200, 1, 7, 0), (130, 2, 5, 2)],
)
def test_blocks_leave_out_exact_zeros_only(queries: int, stride: int, blocks: int, axis: int) -> None:
    probabilities = band(queries, stride=stride)
    made, whole = Table.of(probabilities.split(32)), Table.whole(probabilities)
    assert len(made.blocks) == blocks
    size = [2, 3, 2]
    size[axis] = probabilities.shape[1]
    x = torch.randint(-8, 9, (2, 3, *size)).float()
    expected = torch.einsum("qk,...k->...q", probabilities, x.movedim(axis + 2, -1)).movedim(-1, axis + 2)
    assert torch.equal(made.along(x, axis), expected)
    assert torch.equal(whole.along(x, axis), expected)


def test_negligible_probabilities_are_those_below_their_limit() -> None:
    limit = torch.tensor(NEGLIGIBLE * unit_roundoff(torch.float32))
    below = torch.nextafter(limit, torch.zeros(()))
    found = without_negligible(torch.stack([limit, below, 2 * limit, below / 1024, torch.ones(())]))
    assert found.tolist() == [float(limit), 0, float(2 * limit), 0, 1]


def test_far_keys_are_those_that_weigh_less_than_half_of_what_may_be_left_out_on_their_side() -> None:
    u = unit_roundoff(torch.float32)
    rows = torch.tensor(
        [[0.25, 0.25, 1 / u, 0.25, 0.125], [31 / 64, 0, 1 / u, 0, 63 / 128], [0.49, 0, 1 / u, 0, 0.49]],
        dtype=torch.float64,
    )
    near = torch.tensor([[0, 0.25, 1 / u, 0, 0], [0, 0, 1 / u, 0, 63 / 128], [0, 0, 1 / u, 0, 0]], dtype=torch.float64)
    rows, near = rows * u, near * u
    assert torch.equal(without_far_keys(rows, torch.float32), near)
    assert torch.equal(torch.func.vmap(lambda row: without_far_keys(row, torch.float32))(rows.unsqueeze(0))[0], rows)
