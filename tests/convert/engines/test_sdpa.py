"""The fused kernel computes relative positions from absolute ones, where that rounds nothing, and says where not."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.rounding import staged_error
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.engines.sdpa import _holds_scores, absolute_positions
from conv2attn.convert.errors import EngineError
from tests.integers import integers, with_integers

SDPA = ENGINES["sdpa"]


def layer_of(alpha: float | None = None, *, out: int = 2) -> SelfAttention2d:
    """A layer of 3x2 taps, strided and dilated."""
    return attention_from_conv(nn.Conv2d(2, out, (3, 2), stride=(2, 1), dilation=(1, 2), padding=1), alpha=alpha)


@pytest.mark.parametrize("out", [1, 3, 7])
def test_products_of_absolute_positions_are_the_scores_up_to_what_the_softmax_ignores(out: int) -> None:
    layer, size = layer_of(out=out), Size(5, 4)
    queries, keys = absolute_positions(layer.values(), size, like=torch.zeros(1, dtype=torch.float64))
    dimension = max(3, out)
    grid = list(itertools.product(*map(range, layer.spec.padded_size(size))))
    asked = list(itertools.product(*layer.spec.query_positions(size)))
    assert queries.shape == (layer.num_heads, len(asked), dimension)
    assert keys.shape == (len(grid), dimension)
    assert queries.dtype == keys.dtype == torch.float64
    assert not queries[..., 3:].any()
    assert not keys[:, 3:].any()
    for (h, offset), (q, query) in itertools.product(enumerate(layer.spec.tap_offsets), enumerate(asked)):
        target, alpha = [p + along for p, along in zip(query, offset, strict=True)], float(layer.alpha[h])
        ignored = alpha * sum(t * t for t in target)
        expected = [ignored - alpha * math.dist(key, target) ** 2 for key in grid]
        assert [round(score) for score in expected] == (keys @ queries[h, q]).tolist()


def test_it_refuses_what_it_would_not_compute_exactly() -> None:
    one_hot = layer_of()
    assert SDPA.refusal(one_hot.values()) is None
    assert SDPA.refusal(layer_of(130.0).values()) == "attention is not exactly one-hot, or alpha is no power of two"
    assert SDPA.refusal(layer_of(64.0).values()) == "attention is not exactly one-hot, or alpha is no power of two"
    assert SDPA.refusal(layer_of(256.0).values()) is None
    values = layer_of().values()
    elsewhere = values._replace(weight=values.weight.detach().to("meta"))
    assert SDPA.refusal(elsewhere) == "on this device the fused kernels may round scores to TF32"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("out", [2, 3, 7])
def test_torch_never_forms_all_pairs(out: int, dtype: torch.dtype) -> None:
    layer = layer_of(out=out).to(dtype)
    layer.engine = "sdpa"
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # fails where torch would take another kernel
        assert layer(torch.randn(2, 2, 7, 6, dtype=dtype)).isfinite().all()


def test_its_error_is_known_where_it_may_be_used() -> None:
    assert SDPA.error(layer_of().values()) == staged_error(layer_of().values()) < math.inf
    assert SDPA.error(layer_of(2.0).values()) == SDPA.error(layer_of(130.0).values()) == math.inf


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(Size(54_794_158), torch.float64), (Size(54_794_157, 7_000), torch.float64), (Size(2364), torch.float32)],
)
def test_scores_are_exact_up_to_the_last_integer_that_the_dtype_holds(largest: Size, dtype: torch.dtype) -> None:
    bits = 53 if dtype == torch.float64 else 24
    for grid in (largest, Size(*largest[:-1], largest[-1] + 10_000)):
        assert _holds_scores(grid, dtype) == (3 * sum(n * n for n in grid) <= 2**bits)
    assert _holds_scores(largest, dtype)


def test_a_grid_that_is_too_large_for_exact_scores_is_refused_before_anything_is_computed() -> None:
    layer = attention_from_conv(nn.Conv1d(1, 1, 2, dilation=134_217_720), engine="sdpa")
    with pytest.raises(EngineError, match="at most 2\\^53; got 134217721 pixels; engine 'auto'"):
        layer(torch.zeros(1, 1, 1).expand(1, 1, 134_217_721))


@pytest.mark.parametrize("channels", [(1, 1), (2, 3), (4, 2)])
def test_on_integers_it_is_the_convolution_in_bfloat16(channels: tuple[int, int]) -> None:
    conv = with_integers(nn.Conv2d(*channels, (3, 2), stride=(2, 1), dilation=(1, 2), padding=1)).bfloat16()
    x = integers(3, channels[0], 6, 5, dtype=torch.bfloat16)
    observed = attention_from_conv(conv, engine="sdpa")(x)
    assert observed.dtype == torch.bfloat16
    assert torch.equal(observed.double(), conv.double()(x.double()))
