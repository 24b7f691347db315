"""PyTorch's own nn.MultiheadAttention computes the convolution, looks where it looks, and gives the layer back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conv2attn.convert import ConversionError, attention_from_conv, certify
from conv2attn.convert.export.multihead import attention_from_multihead, multihead_from_attention
from conv2attn.convert.spec import Convolution

LAYERS: list[tuple[Convolution, tuple[int, ...]]] = [
    (nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 2), dilation=(1, 2), groups=2), (7, 9)),
    (nn.Conv2d(1, 40, 3, padding=1, padding_mode="reflect", bias=False), (5, 6)),
    (nn.Conv1d(5, 3, 4, padding="same"), (9,)),
    (nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), padding=1, groups=2), (4, 5)),
]


@pytest.mark.parametrize(("conv", "size"), LAYERS)
def test_multihead_attention_gives_the_convolutions_bits_on_integers(conv: Convolution, size: tuple[int, ...]) -> None:
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
        layer = attention_from_conv(conv)
        theirs = multihead_from_attention(layer, size=size)
        x = torch.randint(-4, 5, (2, layer.in_channels, *size)).float()
        assert torch.equal(theirs(x), conv(x))
        maps = theirs.attention_probabilities(x)
        assert torch.equal(
            maps[1].view(layer.num_heads, -1), layer.attention_probabilities(size).reshape(layer.num_heads, -1)
        )


@pytest.mark.parametrize(("conv", "size"), LAYERS)
def test_random_weights_stay_within_the_certificate(conv: Convolution, size: tuple[int, ...]) -> None:
    nn.init.normal_(conv.weight)
    layer = attention_from_conv(conv)
    x = torch.rand(3, layer.in_channels, *size) * 2 - 1
    with torch.no_grad():
        difference = (multihead_from_attention(layer, size=size)(x) - conv(x)).abs().max()
    assert difference <= certify(layer, input_range=(-1, 1)).bound


@pytest.mark.parametrize(("conv", "size"), LAYERS)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_the_way_back_is_the_layer_bit_for_bit(conv: Convolution, size: tuple[int, ...], alpha: float | None) -> None:
    layer = attention_from_conv(conv, alpha=alpha)
    again = attention_from_multihead(multihead_from_attention(layer, size=size))
    assert again.state_dict().keys() == layer.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in layer.state_dict().items())


def test_a_changed_projection_is_told() -> None:
    theirs = multihead_from_attention(attention_from_conv(nn.Conv2d(2, 3, 3)), size=(4, 4))
    with torch.no_grad():
        theirs.attention.k_proj_weight[5, 0] = 1
    with pytest.raises(ConversionError, match="k_proj_weight"):
        attention_from_multihead(theirs)


def test_projections_that_are_too_large_are_refused() -> None:
    with pytest.raises(ConversionError, match="at most 2 GB"):
        multihead_from_attention(attention_from_conv(nn.Conv2d(1024, 8, 5)), size=(8, 8))
