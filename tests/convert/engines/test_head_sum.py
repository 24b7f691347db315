"""The sum over heads with tables of their own is its formula, forward and backward, in the memory of some queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from conv2attn.convert.engines import separable as module
from conv2attn.convert.engines.separable import blocks_of, head_sum
from tests.integers import integers

SHAPES = {1: ((5,), (4,)), 2: ((5, 4), (3, 6)), 3: ((3, 4, 2), (2, 3, 5))}


def formula(source: Tensor, weight: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """sum_h W_h A_h, head by head."""
    total, groups = torch.zeros(()), weight.shape[1]
    for head in range(len(weight)):
        read = source
        for axis, table in enumerate(tables):
            read = torch.einsum("qk,...k->...q", table[head], read.movedim(axis + 2, -1)).movedim(-1, axis + 2)
        blocks = read.unflatten(1, (groups, -1))
        total = total + torch.einsum("goc,bgc...->bgo...", weight[head], blocks).flatten(1, 2)
    return total


def given(axes: int, groups: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Small integers: X, W of four heads, and their tables."""
    pixels, queries = SHAPES[axes]
    source = integers(2, 2 * groups, *pixels, dtype=torch.float64).requires_grad_()
    weight = integers(4, groups, 3, 2, dtype=torch.float64).requires_grad_()
    tables = [torch.randint(0, 3, (4, q, k)).double().requires_grad_() for q, k in zip(queries, pixels, strict=True)]
    return source, weight, tables


@pytest.mark.parametrize(
    ("axes", "groups", "block"), [(1, 3, 1), (1, 1, 2**20), (2, 3, 1), (2, 1, 2**20), (3, 1, 1), (3, 3, 2**20)]
)
def test_values_and_derivatives_are_the_formula_s_bit_for_bit(
    axes: int, groups: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block)
    source, weight, tables = given(axes, groups)
    observed, expected = head_sum(source, weight, tables), formula(source, weight, tables)
    assert torch.equal(observed, expected)
    upstream, inputs = torch.randint_like(expected, -2, 3), [source, weight, *tables]
    found, wanted = (torch.autograd.grad(y, inputs, upstream, create_graph=True) for y in (observed, expected))
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    second = [torch.autograd.grad(grads[1].square().sum(), source)[0] for grads in (found, wanted)]
    assert torch.equal(*second)


def test_what_some_queries_read_is_not_kept_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)
    source, weight, tables = given(2, 1)
    assert kept_by(lambda: head_sum(source, weight, tables)) < kept_by(lambda: formula(source, weight, tables)) / 2


def kept_by(call: Callable[[], Tensor]) -> int:
    """Numbers that a call keeps for its backward pass."""
    kept: dict[int, int] = {}

    def noted(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
        call()
    return sum(kept.values())


@pytest.mark.parametrize("block", [1, 2**20])
def test_of_long_tables_the_band_is_multiplied_bit_for_bit(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block)
    source = integers(2, 3, 140, 75, dtype=torch.float64).requires_grad_()
    weight = integers(2, 1, 4, 3, dtype=torch.float64).requires_grad_()
    tables = [band(2, 70, 140, stride=2), band(2, 75, 75, stride=1)]
    assert max(stop - begin for _, _, begin, stop in blocks_of(tables[0])) < 70
    observed, expected = head_sum(source, weight, tables), formula(source, weight, tables)
    assert torch.equal(observed, expected)
    upstream, inputs = torch.randint_like(expected, -2, 3), [source, weight, *tables]
    found, wanted = (torch.autograd.grad(y, inputs, upstream) for y in (observed, expected))
    assert all(map(torch.equal, found[:2], wanted[:2]))
    for table, one, other in zip(tables, found[2:], wanted[2:], strict=True):
        assert torch.equal(one[table != 0], other[table != 0])


def band(heads: int, queries: int, keys: int, *, stride: int) -> Tensor:
    """Small integers near the diagonal, of each head at another offset."""
    far = torch.arange(keys) - stride * torch.arange(queries)[:, None] - torch.arange(heads)[:, None, None]
    return torch.where(far.abs() <= 2, torch.randint(1, 3, far.shape), 0).double().requires_grad_()
