"""From a convolution to its attention, and back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conv2attn.convert import ConvSpec, SelfAttention2d, attention_from_conv, conv_from_attention
from conv2attn.convert.bounds.tail import tail_per_unit
from conv2attn.convert.errors import ConversionError, NotAConvolutionError
from tests.positions import move_center


def test_weights_are_copied_not_shared() -> None:
    conv = nn.Conv2d(2, 2, 3)
    layer = attention_from_conv(conv)
    back = conv_from_attention(layer)
    with torch.no_grad():
        layer.weight.zero_()
    assert conv.weight.abs().min() > 0
    assert back.weight.abs().min() > 0


def test_a_network_in_place_of_a_convolution_is_sent_to_what_takes_networks() -> None:
    with pytest.raises(
        ConversionError, match=r"Sequential is not one of .*; convert_model converts those that it holds$"
    ):
        attention_from_conv(nn.Sequential(nn.Conv2d(2, 2, 3)))  # type: ignore[call-overload]
    with pytest.raises(ConversionError, match=r"Linear is not one of PyTorch's convolutions$"):
        attention_from_conv(nn.Linear(2, 2))  # type: ignore[call-overload]


def test_a_moved_center_is_no_convolution() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 2, (2, 3), dilation=2))
    with torch.no_grad():
        move_center(layer, (4, 1), -0.5)
    with pytest.raises(NotAConvolutionError, match=r"head 4 is at \(2.0, -0.5\), not at its kernel tap \(2, 0\)"):
        conv_from_attention(layer)


def test_soft_attention_is_a_convolution_only_within_a_tolerance() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 2, 3), alpha=5.0)
    difference = tail_per_unit(layer.values())
    with pytest.raises(NotAConvolutionError, match="tolerance="):
        conv_from_attention(layer)
    with pytest.raises(NotAConvolutionError, match="more than tolerance"):
        conv_from_attention(layer, tolerance=difference / 2)
    with pytest.raises(ConversionError, match="tolerance must be a number that is not negative; got nan"):
        conv_from_attention(layer, tolerance=float("nan"))
    assert torch.equal(conv_from_attention(layer, tolerance=difference).weight, layer.weight)


def test_content_that_is_off_leaves_the_convolution_and_one_that_is_on_does_not() -> None:
    conv = nn.Conv2d(2, 2, 3)
    layer = attention_from_conv(conv)
    content = layer.add_content(4)
    assert torch.equal(conv_from_attention(layer).weight, conv.weight)
    with torch.no_grad():
        content.key_bias.view(-1)[3] = 1e-6
    with pytest.raises(NotAConvolutionError, match="content terms are on"):
        conv_from_attention(layer)


def test_a_layer_made_without_a_convolution_is_drawn_as_a_new_convolution_is() -> None:
    torch.manual_seed(3)
    conv = nn.Conv2d(4, 2, 3)
    torch.manual_seed(3)
    layer = SelfAttention2d(ConvSpec.from_conv(conv))
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in conv.state_dict().items())
