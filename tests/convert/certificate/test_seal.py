"""The seal is the sum that Checker.v computes, exact for every dtype and size."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import nn

from conv2attn.convert import SelfAttention, attention_from_conv
from conv2attn.convert.certificate.seal import seal

RANGE = (-0.1, 0.7)


def in_fractions(layer: SelfAttention) -> Fraction:
    """sum of (i + 1) x_i over range, claimed alpha, alphas, and each channel's weights and bias."""
    alphas = layer.alpha.detach().double().tolist()
    bias = [0.0] * layer.spec.out_channels if layer.bias is None else layer.bias.detach().double().tolist()
    rows = layer.kernel.detach().double().flatten(1).tolist()
    numbers = [*RANGE, alphas[0], *alphas, *(number for row, b in zip(rows, bias, strict=True) for number in (*row, b))]
    return sum((Fraction(number) * (i + 1) for i, number in enumerate(numbers)), Fraction(0))


def value(text: str) -> Fraction:
    total, _, exponent = text.partition("p")
    return int(total, 16) * Fraction(2) ** int(exponent)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 6, (2, 3), groups=2),
        nn.ConvTranspose1d(4, 6, 3, groups=2),
        nn.Conv3d(1, 2, 2, bias=False),
        nn.Conv2d(90, 100, 3),  # in two pieces
        nn.Conv1d(70_000, 1, 1),  # a row longer than a piece
    ],
    ids=str,
)
def test_the_seal_is_the_exact_sum(conv: nn.Module, dtype: torch.dtype) -> None:
    layer = attention_from_conv(conv.to(dtype))  # type: ignore[call-overload]
    with torch.no_grad():
        layer.weight.view(-1)[:4] = torch.tensor([0.0, 1e-40, -2e-7, 6e4], dtype=torch.float64).to(dtype)
    assert value(seal(layer, RANGE)) == in_fractions(layer)


def test_a_bit_of_a_weight_changes_the_seal() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3))
    before = seal(layer, RANGE)
    with torch.no_grad():
        layer.weight.view(-1).view(torch.int32)[17] ^= 1
    assert seal(layer, RANGE) != before
    assert seal(layer, (-0.1, 0.5)) != seal(layer, RANGE)
