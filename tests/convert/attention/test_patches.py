"""Attention over patches computes the convolution of the pixels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conv2attn.convert import ConversionError, SelfAttention2d, attention_from_conv
from conv2attn.convert.errors import UnsupportedLayerError
from tests.integers import integers, with_integers


@st.composite
def suited(draw: st.DrawFn) -> tuple[nn.Conv2d, int, tuple[int, int]]:
    """A convolution with integer weights, a patch and a size that suit it."""
    patch = draw(st.integers(1, 5))
    stride = draw(st.sampled_from([number for number in range(1, patch + 1) if patch % number == 0]))
    groups = draw(st.sampled_from((1, 2)))
    lines = [(k, d, p) for k in range(1, 6) for d in (1, 2) for p in range(5) if 0 <= d * (k - 1) - 2 * p < stride]
    (rows, *row), (columns, *column) = (draw(st.sampled_from(lines)) for _ in range(2))
    size = (patch * draw(st.integers(1, 3)), patch * draw(st.integers(1, 3)))
    fits = row[1] <= size[0] and column[1] <= size[1]
    conv = nn.Conv2d(
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 2)),
        (rows, columns),
        stride=stride,
        dilation=(row[0], column[0]),
        padding=(row[1], column[1]),
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(("zeros", "circular"))) if fits else "zeros",
    )
    torch.manual_seed(draw(st.integers(0, 99)))
    return with_integers(conv, largest=8), patch, size


@given(suited(), st.sampled_from(("auto", "literal", "separable", "factored", "sdpa")))
def test_attention_over_patches_is_the_convolution_bit_for_bit(
    case: tuple[nn.Conv2d, int, tuple[int, int]], engine: str
) -> None:
    conv, patch, size = case
    x = integers(2, conv.in_channels, *size, largest=8)
    attention = attention_from_conv(conv, patch=patch, engine=engine)
    assert torch.equal(attention(x), conv(x))


@pytest.mark.parametrize(("taps", "patch", "heads"), [(3, 16, 9), (7, 2, 25), (5, 1, 25)])
def test_a_same_convolution_takes_the_heads_of_the_formula(taps: int, patch: int, heads: int) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, taps, padding="same"), patch=patch)[1]
    assert isinstance(layer, SelfAttention2d)
    assert layer.num_heads == heads
    assert (layer.spec.in_channels, layer.spec.out_channels) == (2 * patch**2, 3 * patch**2)


def test_dtype_mode_and_weights_are_those_of_the_convolution() -> None:
    conv = nn.Conv2d(2, 2, 3, padding=1).to(torch.bfloat16).eval()
    attention = attention_from_conv(conv, patch=2)
    layer = attention[1]
    assert isinstance(layer, SelfAttention2d)
    assert layer.weight.dtype == torch.bfloat16
    assert not attention.training
    assert float(layer.weight.detach().double().abs().sum()) == 4 * float(conv.weight.detach().double().abs().sum())
    with torch.no_grad():
        layer.weight.zero_()
    assert conv.weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("conv", "patch"),
    [
        (nn.Conv2d(1, 1, 3), 2),  # fewer outputs than pixels
        (nn.Conv2d(1, 1, 3, padding=2), 2),  # more
        (nn.Conv2d(1, 1, 3, padding=1, stride=2), 3),
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), 2),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 1)), 2),
    ],
    ids=str,
)
def test_what_is_no_convolution_of_patches_is_refused_by_its_reason(conv: nn.Conv2d, patch: int) -> None:
    with pytest.raises(UnsupportedLayerError, match="cannot be converted to patches: "):
        attention_from_conv(conv, patch=patch)


@pytest.mark.parametrize("patch", [0, 1.5])
def test_a_patch_is_a_positive_integer(patch: int) -> None:
    with pytest.raises(ConversionError, match="patch"):
        attention_from_conv(nn.Conv2d(1, 1, 1), patch=patch)
