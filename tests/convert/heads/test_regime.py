"""The exact regime is where the design says it is, in the arithmetic that runs."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from torch import nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    SelfAttention2d,
    attention_from_conv,
    load_converted,
    save_converted,
)
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.heads.regime import _ONE_HOT_GAP, ONE_HOT_ALPHA
from tests.positions import set_alpha

SPEC = ConvSpec(1, 1, kernel_size=(3, 2), dilation=(2, 1))


def half_of_the_smallest(dtype: torch.dtype) -> mpmath.mpf:
    """Half of the smallest positive number: what is less rounds to zero."""
    limits = torch.finfo(dtype)
    return mpmath.mpf(limits.smallest_normal) * mpmath.mpf(limits.eps) / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_threshold_is_the_first_integer_whose_exponential_rounds_to_zero(dtype: torch.dtype) -> None:
    threshold = ONE_HOT_ALPHA[dtype]
    with mpmath.workdps(50):
        assert mpmath.exp(-threshold) < half_of_the_smallest(dtype) < mpmath.exp(-(threshold - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_from_the_threshold_on_softmax_is_exactly_one_hot(dtype: torch.dtype) -> None:
    threshold = ONE_HOT_ALPHA[dtype]
    for keys in (2, 5, 8, 17, 64, 1000):
        scores = torch.full((3, keys), -threshold, dtype=dtype)
        scores[:, keys // 2] = 0
        probabilities = scores.softmax(-1)
        assert probabilities.unique().tolist() == [0, 1]
        assert (probabilities[:, keys // 2] == 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gap_with_room_for_exp_s_rounding_lies_below_the_threshold_and_rounds_to_zero(dtype: torch.dtype) -> None:
    gap = _ONE_HOT_GAP[dtype]
    assert gap < ONE_HOT_ALPHA[dtype]
    with mpmath.workdps(50):
        assert mpmath.exp(-gap) * (1 + 2.0**-8) < half_of_the_smallest(dtype)
    assert torch.tensor([0, -gap], dtype=torch.float64).softmax(0).to(dtype).tolist() == [1, 0]


def test_scores_cancel_where_the_gap_that_is_left_is_not_one_hot() -> None:
    def cancels(dilation: int, alpha: float, dtype: torch.dtype = torch.float32) -> bool:
        conv = nn.Conv1d(1, 1, 2, dilation=dilation, dtype=dtype)
        return attention_from_conv(conv, alpha=alpha).regime.cancels

    assert not any(cancels(2**25, alpha) for alpha in (128.0, 2.0**20))
    assert cancels(2**25 + 4, 128.0)
    assert not any(cancels(200_000, alpha) for alpha in (104.0, 104.1231, 127.667))
    assert not cancels(200_000, 746.0, torch.float64)
    assert cancels(59_428_400, 104.1231)
    assert cancels(97_664_080, 127.667)
    assert not cancels(97_664_080, 1.5)  # soft: its error is known, and infinite


@pytest.mark.parametrize(
    ("dtype", "alpha"),
    [
        *((torch.float64, None), (torch.float32, None), (torch.bfloat16, None), (torch.float16, None)),
        *((torch.float32, 104.0), (torch.float32, 2.0**100)),
    ],
)
def test_maps_are_one_hot_by_default_and_wherever_the_regime_calls_them_exact(
    dtype: torch.dtype, alpha: float | None
) -> None:
    layer = SelfAttention2d(SPEC, dtype=dtype, alpha=alpha)
    assert alpha is not None or layer.alpha.tolist() == [1024 if dtype == torch.float64 else 128] * 6
    assert layer.regime.is_exact
    assert layer.attention_probabilities((9, 7)).unique().tolist() == [0, 1]
    below = 745.9 if dtype == torch.float64 else 103.9
    assert not SelfAttention2d(SPEC, alpha=below, dtype=dtype).regime.is_exact


@pytest.mark.parametrize(
    ("start", "dtype"),
    [(torch.float64, torch.bfloat16), (torch.bfloat16, torch.float64), (torch.float32, torch.float16)],
)
def test_a_default_alpha_follows_the_dtype_and_one_that_was_given_stays(start: torch.dtype, dtype: torch.dtype) -> None:
    layer = SelfAttention2d(SPEC, dtype=start).to(dtype)
    assert layer.regime.is_exact
    assert layer.alpha.tolist() == [1024 if dtype == torch.float64 else 128] * 6
    set_alpha(layer, 2, 2.5)
    given = layer.positions.alpha
    assert given[2] == 2.5
    assert layer.double().positions.alpha == layer.float().positions.alpha == given
    assert SelfAttention2d(SPEC, alpha=128, dtype=start).to(dtype).alpha.tolist() == [128] * 6


@pytest.mark.parametrize("value", [0.0, math.nan, 1e-50, 1e300])
def test_a_locality_strength_that_is_not_positive_and_finite_is_refused_and_nothing_changes(value: float) -> None:
    layer = SelfAttention2d(SPEC, alpha=2.0)
    before = layer.positions
    with pytest.raises(ConversionError, match=r"positive and finite in torch\.float32; head 3 has"):
        set_alpha(layer, 3, value)
    state = layer.state_dict()
    state["alpha"] = state["alpha"].double()
    state["alpha"][3] = value
    with pytest.raises(RuntimeError, match="positions of the layer: alpha must be positive and finite"):
        layer.load_state_dict(state)
    assert layer.positions == before
    assert layer.alpha_follows_dtype is False


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        ({"centers": torch.full((6, 2), math.nan)}, "centers must be finite; head 0 has"),
        ({"centers": torch.zeros(6)}, r"shape \[6, 2\], for 6 heads; got \[6\]"),
        ({"alpha": [1.0, 2.0]}, r"shape \[6\], for 6 heads; got \[2\]"),
        ({"alpha": torch.ones(6).bfloat16()}, "alpha must be at least float32"),
        ({"alpha": "sharp"}, "alpha must be numbers; got 'sharp'"),
    ],
)
def test_positions_of_another_kind_are_refused_and_nothing_changes(positions: dict[str, Any], problem: str) -> None:
    layer = SelfAttention2d(SPEC)
    before = layer.positions
    with pytest.raises(ConversionError, match=problem):
        layer.set_positions(**positions)
    assert layer.positions == before
    assert layer.alpha_follows_dtype


def test_on_a_very_tall_image_heads_still_find_their_pixel() -> None:
    layer = SelfAttention2d(ConvSpec(1, 1, kernel_size=(3, 3), padding=(1, 1)))
    height = 6000
    maps = layer.attention_probabilities((height, 1), queries=[(0, 0), (height - 1, 0)])
    for head, (row, column) in enumerate(layer.spec.tap_offsets):
        for query, top in enumerate((0, height - 1)):
            assert maps[head, query].argmax().item() == (top + 1 + row) * 3 + 1 + column
            assert maps[head, query].sum() == 1


@pytest.mark.parametrize(("dtype", "dilation"), [(torch.bfloat16, 257), (torch.float16, 2049)])
def test_far_taps_are_read_exactly_whatever_the_dtype_and_the_way_there(
    dtype: torch.dtype, dilation: int, tmp_path: Path
) -> None:
    conv = nn.Conv2d(1, 1, (1, 2), dilation=dilation, bias=False).to(dtype)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([3.0, 5.0]).view_as(conv.weight))
    x = torch.randint(-8, 9, (1, 1, 1, dilation + 9)).to(dtype)
    made = attention_from_conv(conv)
    save_converted(made, tmp_path / "layer")
    loaded = load_converted(tmp_path / "layer")
    exported = torch.export.export(made, (x,)).module()
    narrowed = attention_from_conv(copy.deepcopy(conv).double()).to(dtype)
    for layer in (made, loaded, exported, narrowed):
        assert torch.equal(layer(x), conv(x))
    assert made.centers.dtype == narrowed.alpha.dtype == torch.float32
    for engine in ENGINES:
        made.engine = engine
        assert torch.equal(made(x), conv(x))
