"""A table along one axis is read where it may be, and its blocks are as narrow as what their queries read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conv2attn.convert.bounds.rounding import NEGLIGIBLE, unit_roundoff
from conv2attn.convert.engines.axes import AxisTable, Block, without_far_keys, without_negligible

MANY = 10**7  # lines of pixels, so many that calls cost next to nothing
DTYPES = (torch.float32, torch.float64)


def band(queries: int, *, stride: int = 1, width: int = 7, keys: int | None = None) -> Tensor:
    """A table whose query q reads keys stride * q to stride * q + width."""
    keys = stride * (queries - 1) + width if keys is None else keys
    offsets = torch.arange(keys) - stride * torch.arange(queries).unsqueeze(1)
    return ((offsets >= 0) & (offsets < width)).float()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("queries", [90, 200])
def test_a_block_reads_from_the_first_key_of_its_queries_to_the_last(queries: int, stride: int) -> None:
    table = AxisTable.of(band(queries, stride=stride, keys=stride * queries + 20), MANY)
    assert len(table.blocks) > 1
    for block in table.blocks:
        assert (block.first_key, block.last_key) == (stride * block.start, stride * (block.stop - 1) + 7)
    assert [block.start for block in table.blocks] == [0, *(block.stop for block in table.blocks)][:-1]
    assert table.blocks[-1].stop == queries


def test_blocks_have_64_queries_where_that_is_best() -> None:
    table = AxisTable.of(band(640, width=360), MANY)
    assert [block.stop - block.start for block in table.blocks] == [64] * 10


@pytest.mark.parametrize("queries", [24, 60])
def test_one_block_reads_every_key(queries: int) -> None:
    table = torch.zeros(queries, 500)
    table[:, 100:110] = 1
    assert AxisTable.of(table, 1).blocks == (Block(0, queries, 0, 500),)


def test_a_table_is_read_where_it_is_kept_or_on_the_cpu() -> None:
    table = band(100)
    assert len(AxisTable.of(table, MANY).blocks) == len(AxisTable.of(table, MANY, kept=False).blocks) > 1
    for kept in (False, True):
        assert len(AxisTable.of(table.to("meta"), MANY, kept=kept).blocks) == 1
    blocks: list[int] = []

    def count(one: Tensor) -> Tensor:
        blocks.append(len(AxisTable.of(one, MANY).blocks))
        return one

    torch.func.vmap(count)(table.unsqueeze(0))
    assert blocks == [1]


@pytest.mark.parametrize(("queries", "is_read"), [(1, False), (15, False), (16, False), (17, True)])
def test_a_small_table_is_not_read(queries: int, is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(table: Tensor, vectors: int) -> AxisTable:
        read.append(vectors)
        return AxisTable.dense(table)

    monkeypatch.setattr(AxisTable, "banded", noted)
    AxisTable.of(band(queries), 3)
    assert read == [3] * is_read


def test_a_table_in_one_block_is_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    table, x = torch.randint(-9, 10, (4, 6)).double(), torch.randint(-9, 10, (2, 3, 6, 6)).double()
    monkeypatch.delattr(torch, "cat")
    dense = AxisTable.dense(table)
    assert torch.equal(dense.rows_of(x), torch.einsum("qk,...kc->...qc", table, x))
    assert torch.equal(dense.columns_of(x), torch.einsum("qk,...k->...q", table, x))
    assert dense.nbytes == 8 * 4 * 6


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
