"""The seal is the sum that Checker.v computes, exact for every dtype and size."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, attention_from_conv
from conv2attn.convert.certificate import seal as sealing
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


def test_the_first_head_s_alpha_is_the_claimed_one() -> None:
    layer = attention_from_conv(nn.Conv1d(1, 1, 2).double())
    with torch.no_grad():
        layer.set_positions(alpha=torch.tensor([50.0, 60.0]))
    assert value(seal(layer, RANGE)) == in_fractions(layer)


@pytest.mark.parametrize(
    ("end", "exponent"),
    [(0.0, -149), (1.0, -149), (2.0**-96, -149), (2.0**-99, -151), (2.0**-1021, -1073), (2.0**-1030, -1074)],
)
def test_the_exponent_is_the_lowest_of_a_number_of_the_layer_or_its_range(end: float, exponent: int) -> None:
    layer = attention_from_conv(nn.Conv1d(1, 1, 2))
    assert int(seal(layer, (0.0, end)).partition("p")[2]) == exponent


@pytest.mark.parametrize(
    ("channels", "pieces"),
    [((254, 300), [257 * 255, 43 * 255]), ((70_000, 2), [2**16, 70_001 - 2**16] * 2), ((3, 2), [8])],
)
def test_pieces_are_whole_channels_or_as_many_numbers_as_may_be_summed(
    channels: tuple[int, int], pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def weighted(numbers: Tensor, place: int, exponent: int) -> int:
        seen.append(len(numbers))
        return 0

    monkeypatch.setattr(sealing, "_weighted", weighted)
    seal(attention_from_conv(nn.Conv1d(*channels, 1)), RANGE)
    assert seen == pieces


def test_the_largest_piece_of_the_longest_significands_is_summed_exactly() -> None:
    conv, number = nn.Conv1d(255, 256, 1, bias=False).double(), 1 - 2.0**-53
    torch.nn.init.constant_(conv.weight, number)
    layer = attention_from_conv(conv)
    leading = [*RANGE, *layer.alpha.detach().double().tolist()[:1] * 2]
    places = sum(range(5, 5 + 256 * 256)) - sum(
        range(4 + 256, 5 + 256 * 256, 256)
    )  # without the biases, which are zero
    expected = sum((Fraction(one) * (i + 1) for i, one in enumerate(leading)), Fraction(number) * places)
    assert value(seal(layer, RANGE)) == expected


def test_the_smallest_normal_numbers_keep_their_leading_bit() -> None:
    conv = nn.Conv1d(1, 1, 2, bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([[[1.5 * 2.0**-126, -1.25 * 2.0**-126]]]))
    layer = attention_from_conv(conv)
    assert value(seal(layer, RANGE)) == in_fractions(layer)
