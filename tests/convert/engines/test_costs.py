"""What engines, and the forms of their passes, are taken to cost is counted as the modules say; the least is chosen."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.engines import ENGINES, choose_engine, exact_engine, factored, passes, separable
from conv2attn.convert.engines.axes import AxisTable, Block, axis_probabilities, without_far_keys
from conv2attn.convert.engines.base import Cost, are_trained
from conv2attn.convert.engines.convolution import laid_out_like
from conv2attn.convert.engines.joint import JointStencil, JointTable, joint_forms
from conv2attn.convert.engines.passes import cheapest_passes, stencils_are_fast
from conv2attn.convert.engines.processor import (
    CONVOLVING,
    JOINING,
    LANES,
    MOVING,
    REORDERING,
    SHUFFLING,
    WIDEST_PADDING,
)
from conv2attn.convert.engines.stencil import Stencil, keys_read
from conv2attn.convert.size import Size

SIZE = Size(11, 13)
CALL, NARROW, SHORT, LENGTHS = 500_000, 12, 16, (16, 24, 32, 48, 64)  # what axes.py says of products
MATRIX = 2_000  # what passes.py says


# Engines: 4 -> 6 channels in 2 groups, 3x2 taps, stride 1x2, dilation 1x3, on 11x13 pixels and 15x13 with padding.


def layer(alpha: float | None, mode: str = "zeros", dtype: torch.dtype = torch.float32) -> SelfAttention2d:
    geometry = {"stride": (1, 2), "dilation": (1, 3), "padding": (2, 0), "groups": 2, "padding_mode": mode}
    conv = nn.Conv2d(4, 6, (3, 2), dtype=dtype, **geometry)  # type: ignore[arg-type]
    return attention_from_conv(conv, alpha=alpha)


CONVOLUTION = 2 * 5 * (13 * 5) * 6 * (6 * 2)  # batch, 13x5 outputs, channels, taps and channels of a group


def test_one_hot_attention_costs_what_the_convolution_costs_and_a_copy_where_torch_does_not_pad() -> None:
    assert ENGINES["factored"].cost(layer(None), SIZE, batch=5) == Cost(CONVOLUTION, 0)
    assert ENGINES["factored"].cost(layer(None), SIZE) == Cost(CONVOLUTION // 5, 0)
    padded = 5 * 4 * 15 * 13
    assert ENGINES["factored"].cost(layer(None, "circular"), SIZE, batch=5) == Cost(CONVOLUTION, 4 * padded)
    assert ENGINES["factored"].cost(layer(None, "reflect", torch.float64), SIZE, batch=5).bytes == 8 * padded


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("alpha", [None, 8.0])
def test_a_cost_is_in_whole_numbers_and_of_one_input_unless_it_is_told(engine: str, alpha: float | None) -> None:
    cost = ENGINES[engine].cost(layer(alpha), SIZE)
    assert cost == ENGINES[engine].cost(layer(alpha), SIZE, batch=1)
    assert (type(cost.flops), type(cost.bytes)) == (int, int)


def test_soft_factored_attention_costs_two_passes_more() -> None:
    cost = ENGINES["factored"].cost(layer(8.0), SIZE, batch=5)
    keys = 2 * 1 + 1  # the next but one weighs exp(-4 * 8), less than 2^-24
    smoothing = 13 * 15 * keys + 15 * 13 * keys  # each pixel of the padded image, along the rows and along the columns
    assert cost.flops == CONVOLUTION + 2 * 5 * 4 * smoothing
    assert cost.bytes == 4 * (5 * 4 * 15 * 13 + 5 * 4 * 15 * (13 + 13))
    half = ENGINES["factored"].cost(layer(8.0, dtype=torch.bfloat16), SIZE, batch=5)
    assert half.bytes == cost.bytes  # computed in single precision


def test_a_soft_transposed_convolution_costs_one_with_stride_1_over_its_stuffed_input() -> None:
    conv = nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), groups=2)
    soft, hard = (
        ENGINES["factored"].cost(attention_from_conv(conv, alpha=a), Size(5, 4), batch=3) for a in (0.1, None)
    )
    rows, columns = 2 * 5 - 1, 3 * 4 - 1  # of the output, of 9 + 2 and 10 + 2 pixels; at this alpha all are read
    grid, output = (9 + 2) * (10 + 2), 9 * 11
    assert (rows, columns) == (9, 11)
    smoothing = grid * (9 + 2) + grid * (10 + 2)
    assert soft.flops == 2 * 3 * output * 6 * (6 * 2) + 2 * 3 * 4 * smoothing
    assert soft.bytes == 4 * 3 * 4 * (grid + 2 * grid)
    assert type(soft.flops) is int
    assert hard == Cost(2 * 3 * 5 * 4 * 6 * (6 * 2), 0)


@pytest.mark.parametrize(("outputs", "smoothed"), [(2, 2), (4, 4), (6, 4)])
def test_a_single_tap_smooths_its_queries_only_on_the_side_with_fewer_channels(outputs: int, smoothed: int) -> None:
    conv = nn.Conv2d(4, outputs, 1, stride=(2, 3), padding=(1, 2))
    cost = ENGINES["factored"].cost(attention_from_conv(conv, alpha=0.1), SIZE, batch=5)
    rows, columns = 7, 6  # of 13x17 pixels; at this alpha all of them are read
    smoothing = 17 * rows * 13 + rows * columns * 17
    assert cost.flops == 2 * 5 * (rows * columns) * outputs * 4 + 2 * 5 * smoothed * smoothing
    assert cost.bytes == 4 * (5 * 4 * 13 * 17 + 5 * smoothed * rows * (17 + columns))


def test_restoring_the_memory_format_after_the_convolution_moves_its_output_and_its_kernel() -> None:
    x = torch.zeros(5, 4, *SIZE)
    output = 5 * 6 * 13 * 5
    assert factored._reordered_after(layer(8.0).spec, x, layer(8.0).weight) == output + 6 * 2 * 3 * 2
    single = attention_from_conv(nn.Conv2d(4, 6, 1))
    assert factored._reordered_after(single.spec, x, single.weight) == 5 * 6 * 11 * 13


@pytest.mark.parametrize(("outputs", "shapes"), [(64, [(2, 8, 9, 9), (2, 64, 7, 7)]), (4, [(2, 4, 7, 7)])])
def test_the_memory_format_is_restored_where_less_is_moved(
    outputs: int, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    restored, honest = [], laid_out_like

    def noted(x: Tensor, y: Tensor) -> Tensor:
        restored.append(tuple(y.shape))
        return honest(x, y)

    monkeypatch.setattr(factored, "laid_out_like", noted)
    attention_from_conv(nn.Conv2d(8, outputs, 3), alpha=1.0, engine="factored")(torch.randn(2, 8, 9, 9))
    assert restored == shapes


@pytest.mark.parametrize(("engine", "images"), [(factored, (5 * 4, 5 * 4)), (separable, (5 * 4, 5 * 6))])
def test_passes_are_chosen_for_as_many_images_as_they_are_applied_to(
    engine: ModuleType, images: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, honest = [], cheapest_passes

    def noted(*arguments: Any, images: tuple[int, int], **options: Any) -> passes.Passes:
        asked.append(images)
        return honest(*arguments, images=images, **options)

    monkeypatch.setattr(engine, "cheapest_passes", noted)
    attention = layer(8.0)
    attention.engine = engine.__name__.rpartition(".")[2]
    attention(torch.randn(5, 4, *SIZE))
    assert asked == [images]


@pytest.mark.parametrize(("outputs", "taps", "smoothed"), [(2, 1, 2), (6, 1, 4), (2, 3, 4)])
def test_the_form_of_the_smoothing_is_chosen_for_the_channels_that_are_smoothed(
    outputs: int, taps: int, smoothed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, honest = [], cheapest_passes

    def noted(*arguments: Any, images: tuple[int, int], **options: Any) -> passes.Passes:
        asked.append(images)
        return honest(*arguments, images=images, **options)

    monkeypatch.setattr(factored, "cheapest_passes", noted)
    attention_from_conv(nn.Conv2d(4, outputs, taps), alpha=1.0, engine="factored")(torch.randn(1, 4, 8, 8))
    assert asked == [(smoothed, smoothed)]


@pytest.mark.parametrize("alpha", [8.0, 0.1])
def test_the_separable_engine_costs_its_distinct_tables_and_the_heads(alpha: float) -> None:
    cost = ENGINES["separable"].cost(layer(alpha), SIZE, batch=5)
    keys = (3, 3) if alpha == 8.0 else (15, 13)
    rows = 4 * 13 * 3 * keys[0] * 13  # 3 distinct rows of heads: channels, output rows, keys, columns
    mixing = 6 * 6 * 2 * 13 * 13
    columns = 6 * 13 * 5 * 2 * keys[1]
    assert cost.flops == 2 * 5 * (rows + mixing + columns)
    assert cost.bytes == 4 * ((3 + 2) * 5 * 6 * 13 * 13 + 5 * 4 * 15 * 13)


def test_the_separable_engine_holds_as_many_images_as_stay_in_the_cache() -> None:
    conv = nn.Conv2d(8, 4, (1, 3), padding=(0, 1), dtype=torch.float64)
    cost = ENGINES["separable"].cost(attention_from_conv(conv, alpha=1.0), Size(64, 62), batch=100)
    images = 4 * 2**20 // (8 * 64 * 64 * 8)
    assert images == 16
    assert cost.bytes == 8 * ((1 + 2) * images * 8 * 64 * 64 + 100 * 8 * 64 * 64)
    large = ENGINES["separable"].cost(attention_from_conv(conv, alpha=1.0), Size(1024, 1022), batch=100)
    assert large.bytes == 8 * ((1 + 2) * 1 * 8 * 1024 * 1024 + 100 * 8 * 1024 * 1024)


def test_along_three_axes_each_pass_is_over_the_distinct_results_of_those_before() -> None:
    conv = nn.Conv3d(4, 6, (2, 2, 3), stride=(1, 1, 2), padding=(1, 0, 1), groups=2)
    cost = ENGINES["separable"].cost(attention_from_conv(conv, alpha=0.1), Size(5, 4, 7), batch=5)
    grid, output = (7, 4, 9), (6, 3, 4)  # at this alpha all keys are read
    planes = 4 * (2 * 7) * (6 * 4 * 9)  # channels, keys of the distinct tables, places
    rows = 4 * 2 * (2 * 4) * (6 * 3 * 9)
    mixing = 12 * 6 * 2 * (6 * 3 * 9)
    columns = 6 * (3 * 9) * math.prod(output)
    assert cost.flops == 2 * 5 * (planes + rows + mixing + columns)
    assert cost.bytes == 4 * ((2 * 2 + 2) * 5 * 6 * (6 * 3 * 9) + 5 * 4 * math.prod(grid))


@pytest.mark.parametrize(
    ("conv", "size", "pixels"),
    [
        (nn.Conv1d(8, 4, 3, padding=1), Size(62), 64),
        (nn.Conv2d(8, 4, (3, 3), padding=(0, 1)), Size(32, 62), 30 * 64),
        (nn.Conv3d(4, 8, (2, 2, 1), padding=(0, 1, 1)), Size(4, 9, 62), 3 * 10 * 64),
    ],
)
def test_the_separable_engine_takes_no_more_images_at_a_time_than_its_memory_limit_allows(
    conv: nn.Conv1d | nn.Conv2d | nn.Conv3d, size: Size, pixels: int
) -> None:
    # Pixels of an intermediate result: along the last axis those with padding, along the others those of the output.
    attention = attention_from_conv(conv, alpha=1.0)
    for images in (1, 5, 16):
        attention.memory_limit = images * 8 * pixels * 4
        assert separable._images(attention, size) == images
    attention.memory_limit = 10**9
    assert separable._images(attention, size) == 2**22 // (8 * pixels * 4)


def test_heads_that_are_trained_have_a_table_each() -> None:
    trained = layer(8.0)
    trained.alpha.requires_grad_()
    cost = ENGINES["separable"].cost(trained, SIZE, batch=5)
    rows, mixing, columns = 6 * 4 * 13 * 15 * 13, 6 * 6 * 2 * 13 * 13, 6 * 6 * 13 * 5 * 13
    assert cost.flops == 2 * 5 * (rows + mixing + columns)
    assert cost.bytes == 4 * ((6 + 2) * 5 * 6 * 13 * 13 + 5 * 4 * 15 * 13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.3, 2.0, 31.9, 32.0, 200.0])
def test_the_keys_of_a_query_are_about_those_that_are_not_left_out(alpha: float, dtype: torch.dtype) -> None:
    distances = torch.arange(-60, 61, dtype=torch.float64)
    probabilities = (-alpha * distances.square()).softmax(0).unsqueeze(0)
    left = int((without_far_keys(probabilities, dtype) > 0).sum())
    assert abs(keys_read(alpha, 121, dtype) - left) <= 2
    assert keys_read(alpha, 2, dtype) == min(2, keys_read(alpha, 121, dtype))
    assert keys_read(0.0, 121, dtype) == 121


# Processors

WIDE = {"LANES": 16, "MOVING": 32, "REORDERING": 64, "SHUFFLING": 40, "JOINING": 48, "CONVOLVING": 2**22}
NARROW_REGISTERS = {"LANES": 8, "MOVING": 16, "REORDERING": 32, "SHUFFLING": 20, "JOINING": 24, "CONVOLVING": 2**21}


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ("AVX512", WIDE | {"WIDEST_PADDING": 6}),
        ("AVX2", NARROW_REGISTERS | {"WIDEST_PADDING": 4}),
        ("DEFAULT", NARROW_REGISTERS | {"WIDEST_PADDING": 4}),
    ],
)
def test_moving_a_number_costs_twice_as_many_products_where_registers_are_twice_as_long(
    capability: str, said: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    found = runpy.run_path(str(Path(passes.__file__).with_name("processor.py")))
    assert {name: found[name] for name in said} == said


# Tables


def block_cost(queries: int, keys: int, vectors: int) -> int:
    return max(keys, SHORT) * (queries + NARROW) * vectors + CALL


def test_a_table_costs_its_blocks_and_joining_them() -> None:
    for queries, keys in ((10, 20), (10, 5), (1, 16), (3, 17)):
        assert AxisTable.dense(torch.ones(queries, keys)).cost(7) == block_cost(queries, keys, 7)
    table = AxisTable(torch.ones(10, 20), (Block(0, 4, 0, 6), Block(4, 10, 3, 20)))
    assert table.cost(7) == block_cost(4, 6, 7) + block_cost(6, 17, 7) + JOINING * 10 * 7
    assert table.entries == 4 * 6 + 6 * 17


@pytest.mark.parametrize("vectors", [1, 1000, 100_000, 10**7])
@pytest.mark.parametrize("reach", [0, 9, 20, 33, 55])  # each number of queries in a block is the best for some
def test_the_blocks_of_a_band_are_the_cheapest(reach: int, vectors: int) -> None:
    length = 150
    band = (torch.arange(length).unsqueeze(1) - torch.arange(length)).abs() <= reach
    costs = [block_cost(length, length, vectors)]
    for size in LENGTHS:
        ends = [(start, min(start + size, length)) for start in range(0, length, size)]
        widths = [min(stop + reach, length) - max(start - reach, 0) for start, stop in ends]
        blocks = (block_cost(b - a, width, vectors) for (a, b), width in zip(ends, widths, strict=True))
        costs.append(sum(blocks) + JOINING * length * vectors)
    table = AxisTable.of(band.float(), vectors)
    assert table.cost(vectors) == min(costs)
    assert (len(table.blocks) == 1) == (min(costs) == costs[0])


# Passes


def stencil(queries: int, taps: int, padding: int = 0) -> Stencil:
    return Stencil(torch.ones(1).expand(taps), torch.ones(queries), 1, padding)


ROWS, COLUMNS = [torch.ones(4, 9), torch.ones(4, 9)], [torch.ones(5, 7)]  # two tables along the rows, one the columns
IMAGES = (6, 10)
LINES = (6 * 7, 10 * 4)  # of pixels along the rows, and along the columns of the first pass's results


def choice_of(
    tables: list[Tensor], stencils: list[Stencil | None] | None, axis: int, *, axes: int = 2
) -> passes._Choice:
    """The choice along one of the axes of images as ``cheapest_passes`` makes it."""
    before, after = ((6, 7), (10 * 4, 1))[axis]
    return passes._Choice.of(tables, stencils, before=before, after=after, kept=True, is_last=axis == axes - 1)


def test_the_forms_of_the_passes_cost_what_is_said() -> None:
    rows = choice_of(ROWS, [stencil(4, 3), stencil(4, 5)], 0)
    assert rows.table_cost == 2 * block_cost(4, 9, LINES[0]) + 2 * MATRIX * 6
    assert rows.stencil_cost == LINES[0] * 4 * (3 + 5 + 2 * MOVING) + 2 * CONVOLVING
    assert rows.shuffled_cost == rows.stencil_cost + SHUFFLING * LINES[0] * 4 * 2
    columns = choice_of(COLUMNS, [stencil(5, 2, 1)], 1)
    assert columns.table_cost == block_cost(5, 7, LINES[1])
    assert columns.stencil_cost == LINES[1] * 5 * (2 + MOVING) + CONVOLVING
    assert columns.shuffled_cost == columns.stencil_cost + SHUFFLING * LINES[1] * 5


@pytest.mark.parametrize("taps", [1, 3, 40, 200, 2000])
def test_the_cheapest_form_is_taken(taps: int) -> None:
    along_rows: list[Stencil | None] = [stencil(40, taps), stencil(40, taps)]
    along_columns: list[Stencil | None] = [stencil(50, 2, 1)]
    tables = [[torch.ones(40, 90)] * 2, [torch.ones(50, 70)]]
    rows = passes._Choice.of(tables[0], along_rows, before=6, after=70, kept=True, is_last=False)
    columns = passes._Choice.of(tables[1], along_columns, before=400, after=1, kept=True, is_last=True)
    costs = {
        (AxisTable, AxisTable, torch.contiguous_format): rows.table_cost + columns.table_cost,
        (Stencil, AxisTable, torch.contiguous_format): rows.shuffled_cost + columns.table_cost,
        (Stencil, Stencil, torch.contiguous_format): rows.shuffled_cost + columns.shuffled_cost,
        (Stencil, Stencil, torch.channels_last): rows.stencil_cost + columns.stencil_cost + REORDERING * 6 * 90 * 70,
    }
    chosen = cheapest_passes(tables, [along_rows, along_columns], images=(6, 10))
    found = (*(type(axis[0]) for axis in chosen.axes), chosen.memory_format)
    assert costs[found] == min(costs.values())  # type: ignore[index]
    assert chosen.cost == min(costs.values())


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_forms_are_tables_stencils_along_all_axes_but_the_last_and_stencils(axes: int, channels_last: bool) -> None:
    table, narrow = AxisTable.dense(torch.ones(4, 9)), stencil(4, 3)
    there = [passes._Choice((table,), 1.0 + n, (narrow,), 10.0 + n, 100.0 + n) for n in range(axes)]
    missing = [passes._Choice((table,), 1.0 + n, (), math.inf, math.inf) for n in range(axes)]
    apart, together = (7.0, 0.0) if channels_last else (0.0, 7.0)
    dense, near = ((table,),) * axes, ((narrow,),) * axes
    contiguous = torch.contiguous_format
    tables = passes.Passes(dense, contiguous, sum(1.0 + n for n in range(axes)) + apart)
    leading = sum(100.0 + n for n in range(axes - 1))
    mixed = passes.Passes((*near[1:], (table,)), contiguous, leading + 1.0 + axes - 1 + apart)
    along = passes.Passes(near, contiguous, leading + 100.0 + axes - 1 + apart)
    together_along = passes.Passes(near, torch.channels_last, 10.0 + 11.0 + together)

    def forms(choices: list[passes._Choice]) -> list[passes.Passes]:
        return list(passes._forms(choices, 7.0, channels_last=channels_last))

    assert forms(there) == [tables, *[mixed] * (axes > 1), along, *[together_along] * (axes == 2)]
    assert forms([*there[:-1], missing[-1]]) == [tables, *[mixed] * (axes > 1)]
    assert axes == 1 or forms([missing[0], *there[1:]]) == [tables]


def test_of_forms_that_cost_the_same_the_first_is_taken_and_reordering_is_of_the_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    costs = (3.0, 2.0, 2.0, 4.0)
    made = [passes.Passes(((AxisTable.dense(torch.ones(1, 1)),),), torch.contiguous_format, cost) for cost in costs]

    def noted(choices: object, reordering: float, *, channels_last: bool) -> list[passes.Passes]:
        asked.append(reordering)
        return made

    monkeypatch.setattr(passes, "_forms", noted)
    assert cheapest_passes([ROWS, COLUMNS], None, images=IMAGES) is made[1]
    assert asked == [REORDERING * 6 * 9 * 7]


def test_images_whose_channels_lie_together_are_reordered_for_all_forms_but_one() -> None:
    tables, along = [[torch.ones(40, 90)], [torch.ones(50, 70)]], [[stencil(40, 5)], [stencil(50, 5)]]
    chosen = {last: cheapest_passes(tables, along, images=(24, 24), channels_last=last) for last in (False, True)}
    assert chosen[True].memory_format == torch.channels_last
    assert chosen[False].memory_format == torch.contiguous_format
    rows = passes._Choice.of(tables[0], along[0], before=24, after=70, kept=True, is_last=False)
    columns = passes._Choice.of(tables[1], along[1], before=24 * 40, after=1, kept=True, is_last=True)
    assert chosen[True].cost == rows.stencil_cost + columns.stencil_cost
    tables_alone = cheapest_passes(tables, None, images=(24, 24), channels_last=True)
    assert tables_alone.cost == rows.table_cost + columns.table_cost + REORDERING * 24 * 90 * 70


# Both axes at once


@pytest.mark.parametrize(("images", "ragged"), [(LANES, 1), (3 * LANES, 1), (LANES - 2, 4), (LANES + 4, 4)])
def test_both_axes_at_once_cost_one_pass(images: int, ragged: int) -> None:
    rows, columns = torch.ones(4, 9), torch.ones(5, 7)
    for last in (False, True):
        joint = joint_forms((rows, columns), (stencil(4, 3), stencil(5, 2)), images=images, channels_last=last)
        table, along = joint
        moved = 0 if last else SHUFFLING * (4 * 5 + 9 * 7) // 2
        assert along.cost == ragged * images * (4 * 5 * (3 * 2 + MOVING) + moved) + CONVOLVING
        assert table.cost == block_cost(4 * 5, 9 * 7, images) + last * REORDERING * images * 9 * 7


def test_both_axes_at_once_are_for_short_sums_and_little_padding() -> None:
    def forms(pixels: tuple[int, int], *stencils: Stencil | None, last: bool = False) -> list[type]:
        tables = torch.ones(2, pixels[0]), torch.ones(3, pixels[1])
        return [type(form) for form in joint_forms(tables, stencils, images=16, channels_last=last)]

    assert forms((16, 16), stencil(2, 16), stencil(3, 16)) == [JointTable, JointStencil]
    assert forms((16, 17), stencil(2, 16), stencil(3, 17)) == []
    assert forms((16, 17), stencil(2, 16, 15), stencil(3, 16, WIDEST_PADDING)) == [JointStencil]
    assert forms((16, 16), stencil(2, 16, 16), stencil(3, 16)) == [JointTable]
    assert forms((16, 16), stencil(2, 16), stencil(3, 16, WIDEST_PADDING + 1)) == [JointTable]
    assert forms((16, 17), stencil(2, 16, 16), stencil(3, 16, WIDEST_PADDING + 1), last=True) == [JointStencil]
    assert forms((16, 16), None, stencil(3, 16)) == forms((16, 16), stencil(3, 16), None) == [JointTable]


def test_the_smoothing_takes_its_cheapest_form() -> None:
    def form(conv: nn.Conv2d, *shape: int, layout: torch.memory_format = torch.contiguous_format) -> str:
        x = torch.zeros(shape).contiguous(memory_format=layout)
        return type(factored._smoothing(attention_from_conv(conv, alpha=2.0)._values(), x).attention).__name__

    conv = nn.Conv2d(64, 64, 3, padding=1)
    assert form(conv, 8, 64, 56, 56) == form(conv, 8, 64, 56, 56, layout=torch.channels_last) == "JointStencil"
    assert form(conv, 8, 64, 7, 7) == "JointTable"
    assert form(conv, 8, 64, 14, 14) == "Passes"
    assert form(conv.double(), 8, 64, 56, 56) == "Passes"


def test_a_form_needs_a_stencil_for_every_table_and_little_padding() -> None:
    row, column = stencil(4, 3), stencil(5, 2)
    assert not choice_of(ROWS, None, 0).stencils
    assert not choice_of(ROWS, [row, None], 0).stencils
    assert choice_of(ROWS, [row, row], 0).stencils == (row, row)
    assert choice_of(COLUMNS, [column], 1).shuffled_cost < math.inf
    assert choice_of(COLUMNS, [stencil(5, 2, 2)], 1).shuffled_cost == math.inf
    wide = WIDEST_PADDING + 1
    assert choice_of(COLUMNS, [stencil(5, 2 * wide, wide)], 1).shuffled_cost == math.inf
    assert choice_of(ROWS, [stencil(4, 2 * wide, wide)] * 2, 0).shuffled_cost < math.inf
    assert choice_of(ROWS, [stencil(4, 3, 3), stencil(4, 3)], 0).shuffled_cost == math.inf


def test_tables_are_made_to_be_kept_unless_it_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    told, honest = [], AxisTable.of

    def noted(probabilities: Tensor, vectors: int, *, kept: bool) -> AxisTable:
        told.append(kept)
        return honest(probabilities, vectors, kept=kept)

    monkeypatch.setattr(AxisTable, "of", noted)
    for options in ({}, {"kept": True}, {"kept": False}):
        cheapest_passes([ROWS[:1], COLUMNS], None, images=IMAGES, **options)
    assert told == [True, True, True, True, False, False]


def test_images_of_other_axes_are_not_reordered() -> None:
    tables = [[torch.ones(4, 4)]] * 3
    passes_of_volumes = cheapest_passes(tables, [[stencil(4, 1)]] * 3, images=(10**6, 10**6))
    assert passes_of_volumes.memory_format == torch.contiguous_format


def test_the_dearest_form_is_not_taken() -> None:
    cheap, dear = stencil(4, 1), stencil(4, 10**9)
    many = cheapest_passes(([torch.ones(4, 4)], [torch.ones(4, 4)]), ([dear], [dear]), images=(10**6, 10**6))
    assert isinstance(many.axes[0][0], AxisTable)
    assert isinstance(many.axes[1][0], AxisTable)
    mixed = cheapest_passes(([torch.ones(4, 4)], [torch.ones(4, 4)]), ([cheap], [dear]), images=(10**6, 10**6))
    assert mixed.axes[0] == (cheap,)
    assert isinstance(mixed.axes[1][0], AxisTable)


def test_stencils_are_for_images_in_single_precision_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    assert stencils_are_fast(torch.device("cpu"), torch.float32) == onednn
    assert not stencils_are_fast(torch.device("cpu"), torch.float64)
    assert not stencils_are_fast(torch.device("cpu"), torch.bfloat16)
    assert not stencils_are_fast(torch.device("cuda"), torch.float32)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not stencils_are_fast(torch.device("cpu"), torch.float32)


def test_a_table_along_one_axis_is_a_softmax_around_each_target() -> None:
    moved = layer(0.7)
    with torch.no_grad():
        moved.centers[1] = torch.tensor([0.25, -1.5], dtype=torch.float64)
    for axis, (targets, keys) in enumerate(((1.25 + torch.arange(13.0), 15), (2 * torch.arange(5.0) - 1.5, 13))):
        found = axis_probabilities(moved, SIZE, axis)[1]
        distances = torch.arange(float(keys)) - targets.unsqueeze(1)
        expected = (-moved.alpha[1].detach().double() * distances.double().square()).softmax(-1)
        assert torch.equal(found, expected.float())


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_without_a_size_auto_is_the_last_engine_that_is_exact(alpha: float | None) -> None:
    found = exact_engine(layer(alpha), "auto")
    exact = [engine for engine in ENGINES.values() if engine.refusal(layer(alpha)) is None]
    assert found is exact[-1]
    assert choose_engine(layer(alpha), "auto", SIZE) is choose_engine(layer(alpha), "auto", SIZE, batch=1)


def test_positions_are_trained_where_either_is_differentiated_and_not_where_the_input_is() -> None:
    trained = []

    def look(*seen: Tensor) -> Tensor:
        alpha, centers, x = seen
        trained.append(are_trained(alpha, centers))
        return alpha.sum() + centers.sum() + x.sum()

    values = (torch.ones(2), torch.ones(2, 2), torch.ones(3))
    for place in range(3):
        before, after = values[:place], values[place + 1 :]
        torch.func.grad(lambda value, before=before, after=after: look(*before, value, *after))(values[place])
    assert trained == [True, True, False]
    look(*values)
    assert not trained[-1]
