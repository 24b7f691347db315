"""The fused kernel computes relative positions from absolute ones, where that rounds nothing, and says where not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.engines.sdpa import _holds_scores
from conv2attn.convert.errors import EngineError
from conv2attn.convert.heads.values import LayerValues
from conv2attn.convert.size import Size
from tests.integers import integers, with_integers

SDPA = ENGINES["sdpa"]


def layer_of(alpha: float | None = None, *, out: int = 2) -> SelfAttention2d:
    """A layer of 3x2 taps, strided and dilated."""
    return attention_from_conv(nn.Conv2d(2, out, (3, 2), stride=(2, 1), dilation=(1, 2), padding=1), alpha=alpha)


def test_it_refuses_what_it_would_not_compute_exactly() -> None:
    one_hot = layer_of()
    assert SDPA.refusal(one_hot) is None
    assert SDPA.refusal(layer_of(130.0)) == "attention is not exactly one-hot, or alpha is no power of two"
    assert SDPA.refusal(layer_of(64.0)) == "attention is not exactly one-hot, or alpha is no power of two"
    assert SDPA.refusal(layer_of(256.0)) is None
    values = LayerValues.of(layer_of())
    elsewhere = values._replace(weight=values.weight.detach().to("meta"))
    assert SDPA.refusal(elsewhere) == "on this device the fused kernels may round scores to TF32"


@pytest.mark.parametrize(("out", "dtype"), [(2, torch.float32), (3, torch.bfloat16), (7, torch.float64)])
def test_torch_never_forms_all_pairs(out: int, dtype: torch.dtype) -> None:
    layer = layer_of(out=out).to(dtype)
    layer.engine = "sdpa"
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # fails where torch would take another kernel
        assert layer(torch.randn(2, 2, 7, 6, dtype=dtype)).isfinite().all()


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


def test_on_integers_it_is_the_convolution_in_bfloat16() -> None:
    conv = with_integers(nn.Conv2d(2, 3, (3, 2), stride=(2, 1), dilation=(1, 2), padding=1)).bfloat16()
    x = integers(3, 2, 6, 5, dtype=torch.bfloat16)
    observed = attention_from_conv(conv, engine="sdpa")(x)
    assert observed.dtype == torch.bfloat16
    assert torch.equal(observed.double(), conv.double()(x.double()))
