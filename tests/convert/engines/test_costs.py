"""What engines are taken to cost is counted as the modules say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.engines.base import Cost
from conv2attn.convert.engines.factored import keys_read, without_far_keys

SIZE = Size(11, 13)


def layer(alpha: float | None, mode: str = "zeros", dtype: torch.dtype = torch.float32) -> SelfAttention2d:
    """4 -> 6 channels in 2 groups, 3x2 taps, stride 1x2, dilation 1x3, on 11x13 pixels and 15x13 with padding."""
    geometry = {"stride": (1, 2), "dilation": (1, 3), "padding": (2, 0), "groups": 2, "padding_mode": mode}
    conv = nn.Conv2d(4, 6, (3, 2), dtype=dtype, **geometry)  # type: ignore[arg-type]
    return attention_from_conv(conv, alpha=alpha)


CONVOLUTION = 2 * 5 * (13 * 5) * 6 * (6 * 2)  # batch, 13x5 outputs, channels, taps and channels of a group


def test_one_hot_attention_costs_what_the_convolution_costs_and_a_copy_where_torch_does_not_pad() -> None:
    assert ENGINES["factored"].cost(layer(None).values(), SIZE, batch=5) == Cost(CONVOLUTION, 0)
    assert ENGINES["factored"].cost(layer(None).values(), SIZE) == Cost(CONVOLUTION // 5, 0)
    padded = 5 * 4 * 15 * 13
    assert ENGINES["factored"].cost(layer(None, "circular").values(), SIZE, batch=5) == Cost(CONVOLUTION, 4 * padded)
    assert ENGINES["factored"].cost(layer(None, "reflect", torch.float64).values(), SIZE, batch=5).bytes == 8 * padded


def test_the_sdpa_engine_counts_all_pairs_in_operations_and_none_in_bytes() -> None:
    cost = ENGINES["sdpa"].cost(layer(None).values(), SIZE, batch=5)
    heads, queries, keys, dimension = 6, 13 * 5, 15 * 13, 6
    project, pairs = 5 * keys * heads * 6 * (4 // 2), 5 * heads * queries * keys
    assert cost.flops == 2 * project + pairs * (4 * dimension + 4)
    assert cost.bytes == 4 * 5 * heads * dimension * (2 * queries + 2 * keys)


def test_soft_factored_attention_costs_two_passes_more() -> None:
    cost = ENGINES["factored"].cost(layer(8.0).values(), SIZE, batch=5)
    keys = 2 * 1 + 1  # the next but one weighs exp(-4 * 8), less than 2^-24
    smoothing = 13 * 15 * keys + 15 * 13 * keys  # each pixel of the padded image, along the rows and along the columns
    assert cost.flops == CONVOLUTION + 2 * 5 * 4 * smoothing
    assert cost.bytes == 4 * (5 * 4 * 15 * 13 + 5 * 4 * 15 * (13 + 13))
    half = ENGINES["factored"].cost(layer(8.0, dtype=torch.bfloat16).values(), SIZE, batch=5)
    assert half.bytes == cost.bytes  # computed in single precision


def test_a_soft_transposed_convolution_costs_one_with_stride_1_over_its_stuffed_input() -> None:
    conv = nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), groups=2)
    soft, hard = (
        ENGINES["factored"].cost(attention_from_conv(conv, alpha=a).values(), Size(5, 4), batch=3) for a in (0.1, None)
    )
    rows, columns = 2 * 5 - 1, 3 * 4 - 1  # of the output, of 9 + 2 and 10 + 2 pixels; at this alpha all are read
    grid, output = (9 + 2) * (10 + 2), 9 * 11
    assert (rows, columns) == (9, 11)
    smoothing = grid * (9 + 2) + grid * (10 + 2)
    assert soft.flops == 2 * 3 * output * 6 * (6 * 2) + 2 * 3 * 4 * smoothing
    assert soft.bytes == 4 * 3 * 4 * (grid + 2 * grid)
    assert type(soft.flops) is int
    assert hard == Cost(2 * 3 * 5 * 4 * 6 * (6 * 2), 0)


@pytest.mark.parametrize("alpha", [8.0, 0.1])
def test_the_separable_engine_costs_its_distinct_tables_and_the_heads(alpha: float) -> None:
    cost = ENGINES["separable"].cost(layer(alpha).values(), SIZE, batch=5)
    keys = (3, 3) if alpha == 8.0 else (15, 13)
    rows = 4 * 13 * 3 * keys[0] * 13  # 3 distinct rows of heads: channels, output rows, keys, columns
    mixing = 6 * 6 * 2 * 13 * 13
    columns = 6 * 13 * 5 * 2 * keys[1]
    assert cost.flops == 2 * 5 * (rows + mixing + columns)
    tables = 3 * 13 * 15 + 2 * 5 * 13
    assert cost.bytes == 4 * ((3 + 2) * 5 * 6 * 13 * 13 + 5 * 4 * 15 * 13 + tables)


def test_along_three_axes_each_pass_is_over_the_distinct_results_of_those_before() -> None:
    conv = nn.Conv3d(4, 6, (2, 2, 3), stride=(1, 1, 2), padding=(1, 0, 1), groups=2)
    cost = ENGINES["separable"].cost(attention_from_conv(conv, alpha=0.1).values(), Size(5, 4, 7), batch=5)
    grid, output = (7, 4, 9), (6, 3, 4)  # at this alpha all keys are read
    planes = 4 * (2 * 7) * (6 * 4 * 9)  # channels, keys of the distinct tables, places
    rows = 4 * 2 * (2 * 4) * (6 * 3 * 9)
    mixing = 12 * 6 * 2 * (6 * 3 * 9)
    columns = 6 * (3 * 9) * math.prod(output)
    tables = 2 * 6 * 7 + 2 * 3 * 4 + 3 * 4 * 9
    assert cost.flops == 2 * 5 * (planes + rows + mixing + columns)
    assert cost.bytes == 4 * ((2 * 2 + 2) * 5 * 6 * (6 * 3 * 9) + 5 * 4 * math.prod(grid) + tables)


def test_heads_that_are_trained_have_a_table_each() -> None:
    trained = layer(8.0)
    trained.train_positions()
    cost = ENGINES["separable"].cost(trained.values(), SIZE, batch=5)
    rows, mixing, columns = 6 * 4 * 13 * 15 * 13, 6 * 6 * 2 * 13 * 13, 6 * 6 * 13 * 5 * 13
    assert cost.flops == 2 * 5 * (rows + mixing + columns)
    tables = 6 * (13 * 15 + 5 * 13)  # made in double precision
    images = 5 * (4 * 15 * 13 + 2 * 6 * 13 * 5)
    read = 6 * (13 + 5) * 5 * 4 * 13  # of every head, along the columns and along the rows, for 13 rows of queries
    assert cost.bytes == 4 * (images + read) + 16 * tables


def test_content_costs_all_pairs() -> None:
    joined, heads, queries, keys = layer(8.0), 6, 13 * 5, 15 * 13
    joined.add_content(3)
    pairs, numbers = 5 * heads * queries * keys, 5 * heads * (queries + keys) * (6 + 4)
    content = Cost(pairs * (2 * (3 + 3) + 4 + 2 * 4) + 2 * 5 * queries * heads * 6 * 2, 8 * (numbers + 2 * pairs))
    assert ENGINES["separable"].cost(joined.values(), SIZE, batch=5) == content


@pytest.mark.parametrize(("alpha", "dtype"), [(0.3, torch.float64), (31.9, torch.float32), (200.0, torch.float64)])
def test_the_keys_of_a_query_are_about_those_that_are_not_left_out(alpha: float, dtype: torch.dtype) -> None:
    distances = torch.arange(-60, 61, dtype=torch.float64)
    probabilities = (-alpha * distances.square()).softmax(0).unsqueeze(0)
    left = int((without_far_keys(probabilities, dtype) > 0).sum())
    assert abs(keys_read(alpha, 121, dtype) - left) <= 2
    assert keys_read(alpha, 2, dtype) == min(2, keys_read(alpha, 121, dtype))
    assert keys_read(0.0, 121, dtype) == 121
