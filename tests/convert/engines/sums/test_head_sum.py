"""The sum over heads and its derivatives are those of the formula: bitwise on integers, in blocks of any size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.engines.sums import head_sum as module
from conv2attn.convert.engines.sums.head_sum import head_sum

AXES = "ab", "cd", "ef"  # of queries and pixels, for einsum


def formula(source: Tensor, weight: Tensor, tables: list[Tensor]) -> Tensor:
    """sum_h W_h A_h as one contraction."""
    names = AXES[: len(tables)]
    pixels, queries = "".join(name[1] for name in names), "".join(name[0] for name in names)
    grouped = torch.unflatten(source, 1, (weight.shape[1], -1))
    operands = f"ngi{pixels},hgoi," + ",".join(f"h{name}" for name in names)
    return torch.einsum(f"{operands}->ngo{queries}", grouped, weight, *tables).flatten(1, 2)


def integers(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(-2, 3, shape, generator=generator).double()


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Images, weights and tables of integers, with bands of zeros along the first axis."""
    sizes = st.integers(1, 5)
    heads, groups, into, out, batch, axes = (draw(s) for s in (sizes, *[st.integers(1, 3)] * 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    grid = [(draw(sizes), draw(sizes)) for _ in range(axes)]
    tables = [integers(generator, heads, queries, pixels) for queries, pixels in grid]
    tables[0] = torch.triu(torch.tril(tables[0], draw(st.integers(0, 3))), -draw(st.integers(0, 3)))
    source = integers(generator, batch, groups * into, *(pixels for _, pixels in grid))
    return source, integers(generator, heads, groups, out, into), tables


def assert_same(found: Sequence[Tensor], right: Sequence[Tensor], given: tuple[Tensor, Tensor, list[Tensor]]) -> None:
    """Equal derivatives, but for those of zeros of the first table, which may be left out."""
    kept = [torch.tensor(True)] * len(found)
    kept[2] = given[2][0] != 0
    assert all(torch.equal(f * k, r * k) for f, r, k in zip(found, right, kept, strict=True))


@given(inputs(), st.sampled_from([1, 500, 2**20]))
def test_the_sum_and_its_derivatives_are_the_formulas(given: tuple[Tensor, Tensor, list[Tensor]], limit: int) -> None:
    source, weight, tables = given
    leaves = [tensor.requires_grad_() for tensor in (source, weight, *tables)]
    expected = formula(source, weight, tables)
    cotangent = integers(torch.Generator().manual_seed(0), *expected.shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", limit)
        observed = head_sum(source, weight, tables)
        gradients = torch.autograd.grad(observed, leaves, cotangent)
    assert torch.equal(observed, expected)
    assert_same(gradients, torch.autograd.grad(expected, leaves, cotangent), given)


@given(inputs())
def test_derivatives_can_be_differentiated(given: tuple[Tensor, Tensor, list[Tensor]]) -> None:
    source, weight, tables = given
    leaves = [tensor.requires_grad_() for tensor in (source, weight, *tables)]

    def second(output: Tensor) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(tensor.sum() for tensor in first), leaves)  # type: ignore[arg-type]

    assert_same(second(head_sum(*given)), second(formula(*given)), given)


@pytest.mark.parametrize(("batch", "images", "queries"), [(110, 10, 8), (32, 8, 8), (3, 3, 16), (11, 6, 11)])
def test_blocks_are_of_eight_queries_or_more_and_of_as_many_images_as_fit_into_12_mebibytes(
    batch: int, images: int, queries: int
) -> None:
    # 9 heads read 2 x 32 pixels of 64 channels for a query: 147,456 bytes an image; their tables take 36,864 bytes.
    source, tables = torch.zeros(1).expand(32, 32, batch, 64), [torch.ones(9, 32, 32)] * 2
    blocks = list(module._blocks(source, tables))
    assert {block.images.stop - block.images.start for block in blocks} <= {images, batch % images}
    assert {block.queries.stop - block.queries.start for block in blocks} <= {queries, 32 % queries}
    covered = [(q, i) for b in blocks for q in range(32)[b.queries] for i in range(batch)[b.images]]
    assert sorted(covered) == [(q, i) for q in range(32) for i in range(batch)]


def test_where_nothing_fits_blocks_are_of_one_query_and_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)
    blocks = list(module._blocks(torch.ones(5, 5, 3, 2), [torch.ones(2, 4, 5)] * 2))
    found = [(range(4)[b.queries], range(3)[b.images], range(5)[b.pixels]) for b in blocks]
    assert found == [(range(q, q + 1), range(i, i + 1), range(5)) for q in range(4) for i in range(3)]


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_block_is_of_the_pixels_that_some_head_sees(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)
    first = torch.zeros(2, 4, 7)
    for query in range(4):
        first[0, query, query + 1] = first[1, query, query + 2] = share
    blocks = module._blocks(torch.ones(7, 3, 1, 2), [first, torch.ones(2, 3, 3)])
    assert [range(7)[block.pixels] for block in blocks] == [range(query + 1, query + 3) for query in range(4)]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_takes_the_bytes_of_what_is_read_and_of_the_tables_of_the_other_axes(
    axes: int, dtype: torch.dtype
) -> None:
    source = torch.zeros(*(4, 5, 7)[:axes], 3, 2, dtype=dtype)
    tables = [torch.zeros(6, queries, pixels, dtype=dtype) for queries, pixels in ((3, 4), (2, 5), (8, 7))[:axes]]
    block = module._Block.of(tables, slice(0, 1), slice(0, 4), slice(0, 1))
    read, held = (sum(tensor.nbytes for tensor in part) for part in (block.read(source), block.tables[1:]))
    assert module._bytes_of_a_row(source, tables) == (read, held)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_images_may_lie_in_memory_in_any_way(axes: int) -> None:
    generator = torch.Generator().manual_seed(2)
    source, weight = integers(generator, 2, 6, *(3, 4, 5)[:axes]), integers(generator, 4, 2, 2, 3)
    tables = [integers(generator, 4, 2, pixels) for pixels in (3, 4, 5)[:axes]]
    strided = torch.stack([source, source], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    assert torch.equal(head_sum(strided, weight, tables), formula(source, weight, tables))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_value_projections_are_the_kernels_taps_by_head_and_group(transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = attention_from_conv(kind(4, 6, (2, 3), groups=2))
    found = module.head_weights(layer, torch.float64)
    assert found.shape == (6, 2, 3, 2)
    assert found.is_contiguous()
    for head, group, out, into in itertools.product(range(6), range(2), range(3), range(2)):
        assert found[head, group, out, into] == layer.kernel[3 * group + out, into].flatten()[head]


def test_only_what_is_wanted_is_differentiated() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, tables = integers(generator, 2, 1, 3, 4), [integers(generator, 2, 3, 5)]
    source = integers(generator, 2, 4, 5).requires_grad_()
    (first,) = torch.autograd.grad(head_sum(source, weight, tables).square().sum(), source, create_graph=True)
    assert torch.autograd.grad(first.sum(), source)[0].shape == source.shape


def test_no_image_gives_no_output_and_derivatives_of_zero() -> None:
    leaves = [torch.ones(shape, requires_grad=True) for shape in ((0, 4, 5, 6), (2, 1, 3, 4), (2, 3, 5), (2, 6, 6))]
    source, weight, *tables = leaves
    observed = head_sum(source, weight, tables)
    assert observed.shape == (0, 3, 3, 6)
    for gradient, leaf in zip(torch.autograd.grad(observed.sum(), leaves), leaves, strict=True):
        assert torch.equal(gradient, torch.zeros_like(leaf))
