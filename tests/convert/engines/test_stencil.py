"""A stencil has the weights and the scale of its formula, and no more taps than its queries need."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, left_out, unit_roundoff
from conv2attn.convert.engines.processor import WIDEST_PADDING
from conv2attn.convert.engines.stencil import Stencil, _window, keys_read

U = unit_roundoff(torch.float64)


def powers(alpha: float, center: float, first: int, last: int) -> dict[int, float]:
    """exp(-alpha (d - c)^2) for every offset."""
    return {d: math.exp(-alpha * (d - center) ** 2) for d in range(first, last + 1)}


def scales(alpha: float, center: float, *, keys: int, queries: int, stride: int) -> list[float]:
    """scale(q) for every query: the sum over all offsets of a key from a query, over that of the query's own."""
    all_of_them = powers(alpha, center, -stride * (queries - 1), keys - 1)
    total = math.fsum(all_of_them.values())
    return [total / math.fsum(all_of_them[key - stride * query] for key in range(keys)) for query in range(queries)]


@pytest.mark.parametrize("alpha", [0.1, 0.7, 4.0])
@pytest.mark.parametrize("center", [0.0, 1.5, -0.25])
@pytest.mark.parametrize(
    ("keys", "queries", "stride", "zeros"), [(9, 9, 1, 0), (11, 4, 2, 2), (8, 3, 3, 1), (5, 1, 2, 1)]
)
def test_weights_and_scale_are_the_formula(
    alpha: float, center: float, keys: int, queries: int, stride: int, zeros: int
) -> None:
    found = Stencil.of(alpha, center, keys=keys, queries=queries, stride=stride, zeros=zeros, dtype=torch.float64)
    assert found is not None
    assert (found.stride, len(found.scale)) == (stride, queries)
    bell = powers(alpha, center, -stride * (queries - 1), keys - 1)
    total, first = math.fsum(bell.values()), zeros - found.padding
    # An exponent of at most alpha * reach^2 is rounded four times; a sum has one term a key or offset.
    reach = keys + stride * queries + len(found.weights) + abs(center)
    relative = 4 * math.expm1(8 * U * alpha * reach**2) + 2 * gamma(4 * EXP_ULPS + 2 * len(bell) + 8, U)
    expected = powers(alpha, center, first, first + len(found.weights) - 1)
    for weight, power in zip(found.weights.tolist(), expected.values(), strict=True):
        assert abs(weight - power / total) <= relative * power / total
    for scale, right in zip(
        found.scale.tolist(), scales(alpha, center, keys=keys, queries=queries, stride=stride), strict=True
    ):
        assert abs(scale - right) <= relative * right
    assert found.nbytes == 8 * (len(found.weights) + queries)
    single = Stencil.of(alpha, center, keys=keys, queries=queries, stride=stride, zeros=zeros, dtype=torch.float32)
    assert single is not None
    assert (single.weights.dtype, single.scale.dtype) == (torch.float32, torch.float32)
    assert torch.equal(single.scale, found.scale.float())


def narrowest(first: int, last: int, *, pixels: int, queries: int, stride: int, zeros: int) -> tuple[int, int, int]:
    """The least padding, and then the fewest taps, with which a convolution computes these queries, by trying all."""
    for padding, more in itertools.product(range(40), range(40)):
        taps = last + more - (zeros - padding) + 1
        if zeros - padding <= first and (pixels + 2 * padding - taps) // stride + 1 == queries:
            return zeros - padding, last + more, padding
    raise AssertionError("there is none")


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("center", [0.0, -3.0, 2.5])
def test_a_stencil_has_the_taps_that_are_not_left_out_and_those_that_its_queries_need(
    alpha: float, center: float
) -> None:
    keys, queries = 60, 56
    found = Stencil.of(alpha, center, keys=keys, queries=queries, stride=1, zeros=0, dtype=torch.float32)
    assert found is not None
    bell = powers(alpha, center, 1 - queries, keys - 1)
    largest = max(scales(alpha, center, keys=keys, queries=queries, stride=1)) / math.fsum(bell.values())
    most = 0.49 * left_out(torch.float32) / largest
    used = [
        d
        for d in bell
        if min(math.fsum(p for e, p in bell.items() if e <= d), math.fsum(p for e, p in bell.items() if e >= d)) > most
    ]
    first, last, padding = narrowest(used[0], used[-1], pixels=keys, queries=queries, stride=1, zeros=0)
    assert (found.padding, len(found.weights)) == (padding, last - first + 1)


@pytest.mark.parametrize("taps", [1, 3, 20])
def test_torch_is_slow_where_taps_see_only_zeros_or_the_padding_of_columns_is_wide(taps: int) -> None:
    for padding in range(9):
        stencil = Stencil(torch.ones(taps), torch.ones(4), 1, padding)
        assert stencil.is_slow(along_columns=False) == (padding >= taps)
        assert stencil.is_slow(along_columns=True) == (padding >= min(taps, WIDEST_PADDING + 1))


@pytest.mark.parametrize("alpha", [0.25, 1.0])
def test_there_is_no_stencil_where_a_scale_exceeds_2_to_the_20(alpha: float) -> None:
    answers = []
    for tenth in range(120):
        center, geometry = -tenth / 10, {"keys": 5, "queries": 3, "stride": 2}
        largest = max(scales(alpha, center, **geometry))
        found = Stencil.of(alpha, center, zeros=0, dtype=torch.float64, **geometry)
        assert (found is None) == (largest > 2**20)
        answers.append(found is None)
    assert any(answers)
    assert not all(answers)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("queries", [1, 2, 4])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_window_is_the_narrowest_that_computes_its_queries_and_no_other(
    stride: int, queries: int, zeros: int
) -> None:
    for pixels, first, length in itertools.product((1, 2, 5), range(-3, 3), (0, 1, 4)):
        geometry = {"queries": queries, "stride": stride, "zeros": zeros}
        found = _window(first, first + length, keys=pixels + 2 * zeros, **geometry)
        assert found == narrowest(first, first + length, pixels=pixels, **geometry)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_keys_that_are_read_weigh_more_than_what_is_left_out(dtype: torch.dtype) -> None:
    for alpha in (0.01, 0.3, 1.0, 5.5, 40.0):
        read = keys_read(alpha, 10**6, dtype)
        reach = read // 2
        assert read == 2 * reach + 1
        assert math.exp(-alpha * reach**2) >= left_out(dtype) > math.exp(-alpha * (reach + 1) ** 2)
        assert keys_read(alpha, read - 1, dtype) == read - 1
        assert keys_read(alpha, read + 1, dtype) == read
    assert keys_read(0.0, 7, dtype) == 7
