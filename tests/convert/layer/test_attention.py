"""SelfAttention2d is a real attention layer, and says what it does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, ConvSpec, SelfAttention2d, attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import GeometryError

SPEC = ConvSpec(4, 6, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), groups=2)


def test_attention_maps_can_be_asked_for_one_by_one() -> None:
    layer = SelfAttention2d(SPEC, alpha=1.5)
    every = layer.attention_probabilities((7, 5))
    columns = SPEC.output_size(Size(7, 5)).columns
    some = layer.attention_probabilities((7, 5), heads=[4, 0], queries=[(2, 3), (0, 1)])
    assert torch.equal(some, every[[4, 0]][:, [2 * columns + 3, 1]])


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(2, 3, 7, 5), r"\[batch, 4, rows, columns\]; got \[2, 3, 7, 5\]"),
        (torch.zeros(7, 5), r"got \[7, 5\]"),
        (torch.zeros(2, 4, 7, 5, dtype=torch.float64), "dtype torch.float32; got torch.float64"),
        (torch.zeros(2, 4, 7, 1), "does not fit into an input of 7x1"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_in_words(x: Tensor, said: str) -> None:
    with pytest.raises(ConversionError, match=said):
        SelfAttention2d(SPEC)(x)


def test_maps_that_do_not_exist_are_refused() -> None:
    layer = SelfAttention2d(SPEC)
    with pytest.raises(ConversionError, match="heads are numbered 0 to 5"):
        layer.attention_probabilities((7, 5), heads=[6])
    with pytest.raises(ConversionError, match="pixels of the output, 4x4"):
        layer.attention_probabilities((7, 5), queries=[(0, 4)])
    with pytest.raises(GeometryError):
        layer.attention_probabilities((7, 1))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_changed_alpha_is_seen_by_the_next_call(is_loaded: bool) -> None:
    x = torch.randn(1, 4, 7, 5)
    layer = SelfAttention2d(SPEC)
    sharp = layer(x)
    if is_loaded:
        layer.load_state_dict(layer.state_dict() | {"alpha": torch.ones_like(layer.alpha)})
    else:
        layer.set_positions(alpha=1.0)
    soft = SelfAttention2d(SPEC, alpha=1.0)
    soft.load_state_dict({"weight": layer.weight, "bias": layer.bias}, strict=False)
    assert not torch.equal(layer(x), sharp)
    assert torch.equal(layer(x), soft(x))


def test_a_layer_answers_what_code_asks_a_convolution() -> None:
    conv = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2)
    layer = attention_from_conv(conv)
    sizes = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")
    for name in (*sizes, "groups", "padding_mode"):
        assert getattr(layer, name) == getattr(conv, name)
