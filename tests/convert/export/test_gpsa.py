"""ConViT's gated positional self-attention computes the convolution, looks where it looks, and gives the layer back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from conv2attn.convert import ConversionError, attention_from_conv, certify
from conv2attn.convert.export.gpsa import GatedPositionalAttention, attention_from_gpsa, gpsa_from_attention
from conv2attn.convert.export.multihead import multihead_from_attention
from conv2attn.convert.spec import Convolution

LAYERS: list[tuple[Convolution, tuple[int, int]]] = [
    (nn.Conv2d(4, 6, 3, padding=1, groups=2), (6, 6)),
    (nn.Conv2d(2, 40, (3, 2), stride=(1, 2), padding=(1, 2), dilation=(2, 1), padding_mode="reflect"), (7, 5)),
    (nn.Conv2d(3, 5, 4, padding="same", bias=False), (5, 5)),
    (nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), padding=1, groups=2), (3, 7)),
]


@pytest.mark.parametrize(("conv", "size"), LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gpsa_gives_the_convolutions_bits_on_integers(
    conv: Convolution, size: tuple[int, int], dtype: torch.dtype
) -> None:
    conv.to(dtype)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
        layer = attention_from_conv(conv)
        theirs = gpsa_from_attention(layer, size=size)
        x = torch.randint(-4, 5, (2, layer.in_channels, *size)).to(dtype)
        assert torch.equal(theirs(x), conv(x))
        assert isinstance(theirs.attention, GatedPositionalAttention)
        maps = theirs.attention.attention_probabilities(theirs.tokens(x))[:, :, theirs.places]
        assert torch.equal(maps[1].flatten(), layer.attention_probabilities(size).flatten())


@pytest.mark.parametrize(("conv", "size"), LAYERS)
def test_random_weights_stay_within_the_certificate(conv: Convolution, size: tuple[int, int]) -> None:
    conv.float()
    nn.init.normal_(conv.weight)
    layer = attention_from_conv(conv)
    x = torch.rand(3, layer.in_channels, *size) * 2 - 1
    with torch.no_grad():
        difference = (gpsa_from_attention(layer, size=size)(x) - conv(x)).abs().max()
    assert difference <= certify(layer, input_range=(-1, 1)).bound


@pytest.mark.parametrize(("conv", "size"), LAYERS)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_the_way_back_is_the_layer_bit_for_bit(conv: Convolution, size: tuple[int, int], alpha: float | None) -> None:
    layer = attention_from_conv(conv, alpha=alpha)
    again = attention_from_gpsa(gpsa_from_attention(layer, size=size))
    assert again.state_dict().keys() == layer.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in layer.state_dict().items())
    assert torch.equal(again.attention_probabilities(size), layer.attention_probabilities(size))


@pytest.mark.parametrize("changed", ["qk.weight", "v.weight", "gating_param", "pos_proj.bias"])
def test_a_changed_tensor_is_told(changed: str) -> None:
    theirs = gpsa_from_attention(attention_from_conv(nn.Conv2d(2, 3, 3)), size=(4, 4))
    with torch.no_grad():
        theirs.attention.get_parameter(changed).view(-1)[0] += 0.25
    with pytest.raises(ConversionError, match=changed):
        attention_from_gpsa(theirs)


def test_a_padded_image_that_is_not_square_is_refused() -> None:
    with pytest.raises(ConversionError, match=r"square images; the layer.s keys are 6x7 pixels"):
        gpsa_from_attention(attention_from_conv(nn.Conv2d(2, 3, 3, padding=1)), size=(4, 5))


def test_a_sequence_is_refused() -> None:
    with pytest.raises(ConversionError, match="the layer has 1 axes"):
        gpsa_from_attention(attention_from_conv(nn.Conv1d(2, 3, 3)), size=(4,))


@pytest.mark.parametrize("way", [gpsa_from_attention, multihead_from_attention])
def test_autocast_is_refused_since_it_would_move_heads(way: Callable[..., nn.Module]) -> None:
    theirs = way(attention_from_conv(nn.Conv2d(2, 3, 3, padding=1)), size=(9, 9))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConversionError, match="outside of autocast"):
        theirs(torch.rand(1, 2, 9, 9))


def test_half_precision_is_refused() -> None:
    with pytest.raises(ConversionError, match="would round positions"):
        gpsa_from_attention(attention_from_conv(nn.Conv2d(2, 3, 3).half()), size=(4, 4))


def test_content_terms_are_refused() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3))
    layer.add_content(4)
    with pytest.raises(ConversionError, match="content terms"):
        gpsa_from_attention(layer, size=(4, 4))


def test_projections_that_are_too_large_are_refused() -> None:
    with pytest.raises(ConversionError, match="at most 2 GB"):
        gpsa_from_attention(attention_from_conv(nn.Conv2d(1024, 8, 5)), size=(8, 8))
