"""The value projections of all heads, head by head or for all heads of a place at once, and their derivatives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.engines.sums import mixing as module
from conv2attn.convert.engines.sums.mixing import all_heads, mixed, mixing_gradients

SIZES = st.integers(1, 4)


@pytest.mark.parametrize("long", [1, 100])
@given(heads=SIZES, places=SIZES, groups=st.integers(1, 3), into=SIZES, out=SIZES, seed=st.integers(0, 2**32))
def test_both_ways_are_the_sum_over_heads_and_its_derivatives(
    long: int, heads: int, places: int, groups: int, into: int, out: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def integers(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape, generator=generator).double()

    read, weight = integers(heads, places, groups * into), integers(heads, groups, out, into)
    gradient = integers(places, groups * out)
    read.requires_grad_()
    matrix = all_heads(weight).requires_grad_()
    grouped = torch.unflatten(read, 2, (groups, into))
    weights = matrix.view(groups, heads, into, out)
    expected = torch.einsum("hpgi,ghio->pgo", grouped, weights).flatten(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LONG", long)
        observed = mixed(read, matrix)
        gradients = mixing_gradients(read.detach(), matrix.detach(), gradient)
    assert torch.equal(observed, expected)
    wanted = torch.autograd.grad(expected, [read, matrix], gradient, retain_graph=True)
    followed = torch.autograd.grad(observed, [read, matrix], gradient)
    for found, right, by_autograd in zip(gradients, wanted, followed, strict=True):
        assert torch.equal(found, right)
        assert torch.equal(by_autograd, right)


def test_each_head_has_a_product_of_its_own_where_no_group_shares_them_and_sums_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered, honest = [], module._by_place

    def noted(read: torch.Tensor, groups: int) -> torch.Tensor:
        gathered.append((groups, read.shape[2]))
        return honest(read, groups)

    monkeypatch.setattr(module, "_by_place", noted)
    for groups, channels in ((1, 15), (1, 16), (1, 40), (2, 32)):
        mixed(torch.ones(2, 3, channels), torch.ones(groups, 2 * channels // groups, 5))
    assert gathered == [(1, 15), (2, 32)]


def test_one_pair_of_matrices_is_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, honest = [], torch.bmm

    def noted(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        batches.append(len(left))
        return honest(left, right)

    monkeypatch.setattr(torch, "bmm", noted)
    for groups in (1, 2):
        assert mixed(torch.ones(2, 3, 4), torch.ones(groups, 8 // groups, 5)).shape == (3, 5 * groups)
    assert batches == [2]
