"""Engines that never form all pairs agree with the literal one, for every position that they accept."""

from __future__ import annotations

import math
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

from conv2attn.convert import SelfAttention, attention_from_conv
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff
from conv2attn.convert.engines import separable as engine_module
from conv2attn.convert.engines.axes import AxisTable, Block, axis_probabilities, without_far_keys
from conv2attn.convert.engines.convolution import Geometry, convolve
from conv2attn.convert.engines.factored import smoothing_matrix
from conv2attn.convert.engines.passes import Passes, cheapest_passes
from conv2attn.convert.errors import EngineError, GeometryError
from conv2attn.convert.size import Size
from conv2attn.proofs.evidence.strategies import attention_layers, convolutions_with_input
from tests.bounds import output_bound

DOUBLES = convolutions_with_input(dtype=torch.float64)
Case = tuple[nn.Conv2d, Tensor]


def bound(layer: SelfAttention, x: Tensor) -> float:
    """Two computations of a layer in double precision, whose scores err by roundings of their largest value.

    A score sums three products of at most alpha (2 reach)^2, reach being the grid's diagonal and the centre's
    distance; each weight then errs by twice that, relatively.
    """
    grid = layer.spec.padded_size(Size(*x.shape[2:]))
    farthest = math.hypot(*grid) + float(layer.centers.detach().abs().max()) * 2
    scores = float(layer.alpha.detach().max()) * (2 * farthest) ** 2 * gamma(8, unit_roundoff(torch.float64))
    scale = x.abs().max() * layer.weight.detach().abs().sum((1, 2, 3)).max()
    return output_bound(layer, x) + 4 * math.expm1(2 * scores) * scale.item()


@given(DOUBLES, st.data())
def test_moved_heads_with_their_own_alpha_are_computed_exactly(case: Case, data: st.DataObject) -> None:
    conv, x = case
    layer = data.draw(attention_layers(conv))
    layer.engine = "separable"
    separable = layer(x)
    layer.engine = "literal"
    assert (separable - layer(x)).abs().max() <= bound(layer, x)


@given(DOUBLES, st.data())
def test_learned_tables_are_computed_exactly(case: Case, data: st.DataObject) -> None:
    conv, x = case
    layer = attention_from_conv(conv, engine="separable")
    tables = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    layer.set_axis_scores(*(torch.randint(-6, 7, (layer.num_heads, 99), generator=tables) for _ in range(2)))
    separable = layer(x)
    layer.engine = "literal"
    assert (separable - layer(x)).abs().max() <= output_bound(layer, x)


@given(DOUBLES, st.data())
def test_gradients_of_positions_agree(case: Case, data: st.DataObject) -> None:
    conv, x = case
    layer = data.draw(attention_layers(conv))
    for parameter in (layer.alpha, layer.centers):
        parameter.requires_grad_()
    cotangent = torch.randn_like(conv(x))
    gradients = {}
    for engine in ("separable", "literal"):
        layer.engine = engine
        gradients[engine] = torch.autograd.grad(layer(x), [layer.alpha, layer.centers], cotangent)
    grid = layer.spec.padded_size(Size(*x.shape[2:]))
    reach = math.hypot(*grid) + float(layer.centers.detach().abs().max()) * 2
    # d output / d alpha = sum_k p_k (mean - distance^2) x_k: the error of p, on terms up to reach^2; likewise centres.
    largest = 8 * max(1, float(layer.alpha.detach().max())) * reach**2 * float(cotangent.abs().sum())
    for separable, literal in zip(gradients["separable"], gradients["literal"], strict=True):
        assert (separable - literal).abs().max() <= bound(layer, x) * largest


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_images_in_parts_give_every_image_its_output(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = nn.Conv2d(2, 3, 2, bias=False).requires_grad_(False), torch.randint(-8, 9, (batch, 2, 5, 4)).float()
    conv.weight.copy_(torch.randint(-8, 9, conv.weight.shape))
    monkeypatch.setattr(engine_module, "_CHUNK_BYTES", 1)
    assert torch.equal(attention_from_conv(conv, engine="separable")(x), conv(x))


@pytest.mark.parametrize("images", [1, 2, 5])
def test_as_many_images_are_computed_at_a_time_as_fit(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    honest = engine_module._attend

    def noted(weight: Tensor, tables: engine_module._Tables, source: Tensor) -> Tensor:
        taken.append(len(source))
        return honest(weight, tables, source)

    monkeypatch.setattr(engine_module, "_attend", noted)
    monkeypatch.setattr(engine_module, "_CHUNK_BYTES", images * 3 * (5 * 6) * 8)
    layer = attention_from_conv(nn.Conv2d(2, 3, (1, 2)).double(), alpha=1.0, engine="separable")
    x = torch.randn(3, 2, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        layer(x)
        assert taken == {1: [1, 1, 1], 2: [2, 1], 5: [3]}[images]
        taken.clear()
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            layer(mode.from_tensor(x))
    assert taken == [3]


@pytest.mark.parametrize("kernel", [(2, 3, 2), (1, 2, 3), (3, 1, 2)])
def test_volumes_are_computed_exactly_from_the_heads_own_planes_rows_and_columns(kernel: tuple[int, int, int]) -> None:
    conv = nn.Conv3d(2, 3, kernel, stride=(1, 2, 1), padding=(1, 0, 1), bias=False).requires_grad_(False)
    conv.weight.copy_(torch.randint(-8, 9, conv.weight.shape))
    x = torch.randint(-8, 9, (2, 2, 4, 5, 6)).float()
    assert torch.equal(attention_from_conv(conv, engine="separable")(x), conv(x))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_channels_are_mixed_by_a_convolution_where_those_of_an_images_pixel_lie_together(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    honest = convolve

    def noted(x: Tensor, weight: Tensor, bias: None, geometry: Geometry) -> Tensor:
        asked.append(x.ndim)
        return honest(x, weight, bias, geometry)

    monkeypatch.setattr(engine_module, "convolve", noted)
    weight = torch.randint(-9, 10, (groups, 6 // groups if groups < 4 else 1, 4 // groups)).float()
    for size, layout in (((5, 6), torch.channels_last), ((3, 5, 6), torch.channels_last_3d), ((7,), None)):
        x = torch.randint(-9, 10, (2, 4, *size)).float()
        pixels = x.view(2, groups, 4 // groups, -1)
        expected = torch.einsum("goc,bgcp->bgop", weight, pixels).flatten(1, 2).view(2, -1, *size)
        assert torch.equal(engine_module._project(weight, x), expected)
        assert not asked
        if layout is not None:
            together = x.contiguous(memory_format=layout)
            assert torch.equal(engine_module._project(weight, together), expected)
            assert asked == [4] * (len(size) == 2)
        asked.clear()


def test_one_part_of_the_images_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 2), alpha=1.0, engine="separable").requires_grad_(False)
    monkeypatch.delattr(torch, "cat")
    layer(torch.randn(3, 2, 5, 4))


def test_heads_are_differentiated_by_hand_where_they_are_trained_on_a_cpu_and_in_no_transform() -> None:
    layer, x = attention_from_conv(nn.Conv2d(2, 3, 2), alpha=1.0), torch.randn(1, 2, 5, 4)
    assert not engine_module._is_by_head(layer, x)
    layer.alpha.requires_grad_()
    assert engine_module._is_by_head(layer, x)
    assert not engine_module._is_by_head(layer, x.to("meta"))
    for mode in (FakeTensorMode(), forward_ad.dual_level()):
        with mode:
            assert not engine_module._is_by_head(layer, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tables_of_positions_at_rest_leave_out_far_keys_and_are_kept_and_may_be_stencils(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[list[Tensor]], bool, bool]] = []

    def noted(tables: list[list[Tensor]], stencils: object, *, images: tuple[int, int], kept: bool) -> Passes:
        asked.append((tables, stencils is not None, kept))
        return cheapest_passes(tables, None, images=images)

    monkeypatch.setattr(engine_module, "cheapest_passes", noted)
    monkeypatch.setattr(engine_module, "stencils_are_fast", lambda device, dtype: dtype == torch.float32)
    layer, size = attention_from_conv(nn.Conv2d(2, 3, (2, 1), dtype=dtype), alpha=1.0), Size(19, 18)
    full = [axis_probabilities(layer, size, axis) for axis in (0, 1)]
    engine_module._make_tables(layer._values(), size, 1)
    layer.alpha.requires_grad_()
    engine_module._make_tables(layer._values(), size, 1)
    (near, narrow, kept), (whole, narrow_too, kept_too) = asked
    assert (narrow, kept, narrow_too, kept_too) == (dtype == torch.float32, True, False, False)
    for along, tables, all_keys in zip(full, near, whole, strict=True):
        assert len(tables) == len(set(map(str, along.tolist())))
        for table, probabilities in zip(tables, along, strict=False):
            assert torch.equal(table, without_far_keys(probabilities, dtype))
            assert not torch.equal(table, probabilities)
        for table, probabilities in zip(all_keys, along, strict=True):
            assert torch.equal(table, probabilities)


def test_heads_in_one_row_share_its_product(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[AxisTable] = []
    honest = AxisTable.rows_of

    def counted(table: AxisTable, x: Tensor) -> Tensor:
        applied.append(table)
        return honest(table, x)

    monkeypatch.setattr(AxisTable, "rows_of", counted)
    conv = nn.Conv2d(2, 3, (3, 5), padding=1, dtype=torch.float64)
    attention_from_conv(conv, alpha=1.0, engine="separable")(torch.randn(1, 2, 9, 7, dtype=torch.float64))
    assert len(applied) == 3


def test_heads_are_listed_under_their_last_table_with_the_numbers_of_the_others() -> None:
    names: list[list[object]] = [["a", "b", "a", "b"], ["c", "c", "c", "d"], ["e", "f", "f", "e"]]
    assert engine_module._users(names) == (((0, (0, 0)), (3, (1, 1))), ((1, (1, 0)), (2, (0, 0))))
    assert engine_module._users([["x", "y", "x"]]) == (((0, ()), (2, ())), ((1, ()),))


@pytest.mark.parametrize(("kernel", "kept"), [((3, 1), 1), ((3, 2), 3)])
def test_what_no_other_head_reads_is_dropped(
    kernel: tuple[int, int], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []
    read: list[weakref.ref[Tensor]] = []
    honest = engine_module._project

    def noted(weight: Tensor, x: Tensor) -> Tensor:
        if not any(reference() is x for reference in read):
            read.append(weakref.ref(x))
        alive.append(sum(reference() is not None for reference in read))
        return honest(weight, x)

    monkeypatch.setattr(engine_module, "_project", noted)
    conv = nn.Conv2d(2, 3, kernel, padding=1, dtype=torch.float64).requires_grad_(False)
    attention_from_conv(conv, alpha=1.0, engine="separable")(torch.randn(1, 2, 9, 7, dtype=torch.float64))
    assert max(alive) == kept


@given(
    st.integers(1, 90),
    st.floats(0.02, 300),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(1, 10**7),
)
def test_blocks_leave_out_exact_zeros_only(length: int, alpha: float, dtype: torch.dtype, vectors: int) -> None:
    probabilities = smoothing_matrix(length, alpha, like=torch.zeros(1, dtype=dtype))
    table = AxisTable.banded(probabilities, vectors)
    kept = torch.zeros_like(probabilities)
    for block in table.blocks:
        part = slice(block.start, block.stop), slice(block.first_key, block.last_key)
        kept[part] = probabilities[part]
    assert torch.equal(kept, probabilities)
    assert [block.start for block in table.blocks][1:] == [block.stop for block in table.blocks][:-1]


def test_only_the_blocks_of_a_table_are_read() -> None:
    probabilities = torch.full((5, 6), float("nan"))
    probabilities[:2, :3], probabilities[2:, 2:] = 1.0, 2.0
    table = AxisTable(probabilities, (Block(0, 2, 0, 3), Block(2, 5, 2, 6)))
    x = torch.arange(4.0 * 6 * 7).view(4, 6, 7)
    above, below = x[:, :3].sum(1, keepdim=True), 2 * x[:, 2:].sum(1, keepdim=True)
    expected = torch.cat([above.expand(4, 2, 7), below.expand(4, 3, 7)], 1)
    assert torch.equal(table.rows_of(x), expected)
    assert torch.equal(table.columns_of(x.mT), expected.mT)


def test_a_narrow_band_is_applied_in_blocks() -> None:
    probabilities = smoothing_matrix(226, 2.0, like=torch.zeros(1))
    table = AxisTable.banded(probabilities, 64 * 226)
    assert len(table.blocks) > 1
    assert table.entries < probabilities.numel() / 2
    x = torch.randn(2, 3, 226, 226, dtype=torch.float64)
    exact = probabilities.double()
    size = gamma(226, unit_roundoff(torch.float32)) * 2
    for observed, expected in (
        (table.rows_of(x.float()), exact @ x.float().double()),
        (table.columns_of(x.float()), x.float().double() @ exact.T),
    ):
        assert (observed.double() - expected).abs().max() <= size * x.abs().max()


@pytest.mark.parametrize("engine", ["separable", "factored"])
def test_tables_are_made_once_for_a_size(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Tensor] = []
    honest = AxisTable.of

    def counted(probabilities: Tensor, vectors: int, *, kept: bool = True) -> AxisTable:
        made.append(probabilities)
        return honest(probabilities, vectors, kept=kept)

    monkeypatch.setattr(AxisTable, "of", counted)
    layer = attention_from_conv(nn.Conv2d(2, 3, 3), alpha=1.0, engine=engine)
    x = torch.randn(1, 2, 9, 7)
    layer(x)
    first = len(made)
    layer(x)
    assert len(made) == first
    layer(x[..., :-1])
    assert len(made) == 2 * first
    with torch.no_grad():
        layer.alpha.fill_(2.0)
    layer(x)
    assert len(made) == 3 * first


def test_ever_new_sizes_do_not_fill_the_memory() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 2), alpha=1.0)
    for width in range(2, 200):
        layer(torch.zeros(1, 1, 2, width))
    assert len(layer.regime._memory) <= 64


def test_learned_tables_have_limits_and_say_so() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 3))
    with pytest.raises(GeometryError, match="must have 9 heads"):
        layer.set_axis_scores(torch.zeros(3, 5), torch.zeros(3, 5))
    with pytest.raises(GeometryError, match="odd number"):
        layer.set_axis_scores(torch.zeros(9, 4), torch.zeros(9, 5))
    layer.set_axis_scores(torch.zeros(9, 11), torch.zeros(9, 11))
    layer(torch.zeros(1, 1, 6, 6))
    with pytest.raises(GeometryError, match="tables reach 6"):
        layer(torch.zeros(1, 1, 7, 6))
    layer.engine = "factored"
    with pytest.raises(EngineError, match="learned tables"):
        layer(torch.zeros(1, 1, 6, 6))


def test_learned_tables_are_trained() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 2, 2), engine="separable")
    scores = layer.set_axis_scores(torch.randn(4, 13), torch.randn(4, 13))
    torch.autograd.backward(layer(torch.randn(2, 2, 7, 6)).square().sum())
    for table in scores.tables:
        assert table.grad is not None
        assert table.grad.abs().max() > 0


def test_uniform_tables_average_the_image() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 1, bias=False).double(), engine="separable")
    layer.set_axis_scores(torch.zeros(1, 15), torch.zeros(1, 15))
    x = torch.randn(1, 1, 8, 4, dtype=torch.float64)
    expected = layer.weight.item() * x.mean()
    assert (layer(x) - expected).abs().max() <= gamma(4 * EXP_ULPS, unit_roundoff(torch.float64)) * x.abs().max()
