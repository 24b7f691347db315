"""A layer is a real attention layer with the weights of its convolution, and says what it does and where it looks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conv2attn.convert import ConvSpec, SelfAttention2d, attention_from_conv, conv_from_attention
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.tail import tail_per_unit
from conv2attn.convert.engines.literal import project_values
from tests.bounds import softmax_bound
from tests.integers import integers, with_integers

SPEC = ConvSpec(4, 6, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), groups=2)


def test_attention_maps_can_be_asked_for_one_by_one() -> None:
    layer = SelfAttention2d(SPEC, alpha=1.5)
    every = layer.attention_probabilities((7, 5))
    columns = SPEC.output_size(Size(7, 5)).columns
    some = layer.attention_probabilities((7, 5), heads=[4, 0], queries=[(2, 3), (0, 1)])
    assert torch.equal(some, every[[4, 0]][:, [2 * columns + 3, 1]])


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


def test_weights_are_copied_not_shared() -> None:
    conv = nn.Conv2d(2, 2, 3)
    layer = attention_from_conv(conv)
    back = conv_from_attention(layer)
    with torch.no_grad():
        layer.weight.zero_()
    assert conv.weight.abs().min() > 0
    assert back.weight.abs().min() > 0


def test_a_layer_made_without_a_convolution_is_drawn_as_a_new_convolution_is() -> None:
    torch.manual_seed(3)
    conv = nn.Conv2d(4, 2, 3)
    torch.manual_seed(3)
    layer = SelfAttention2d(ConvSpec.from_conv(conv))
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in conv.state_dict().items())


def test_attention_is_the_convolution_of_its_weights_within_how_soft_it_is() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 2, 3), alpha=5.0)
    assert torch.equal(conv_from_attention(layer, tolerance=tail_per_unit(layer.values())).weight, layer.weight)
    sharp = attention_from_conv(nn.Conv2d(2, 2, 3))
    sharp.add_content(4)  # which is off
    assert torch.equal(conv_from_attention(sharp).weight, sharp.weight)


# The attention weights behind an output, as nn.MultiheadAttention gives them


def strided(alpha: float | None = None) -> SelfAttention2d:
    """A layer of integers, so that its output does not depend on the order of sums."""
    conv = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2)
    return attention_from_conv(with_integers(conv, largest=8), alpha=alpha)


def test_the_weights_mix_the_values_into_the_output() -> None:
    layer, x = strided(), integers(3, 4, 7, 5)
    output, weights = layer(x, need_weights=True, average_attn_weights=False)
    values = project_values(layer.values(), layer.spec.pad(x))
    mixed = torch.einsum("bhqk,hkbo->boq", weights, values) + layer.bias.view(-1, 1)  # type: ignore[union-attr]
    assert torch.equal(output, layer(x))
    assert torch.equal(output.flatten(2), mixed)


@pytest.mark.parametrize("average", [True, False])
def test_with_content_every_input_has_weights_of_its_own(average: bool) -> None:
    layer, x = strided(alpha=0.5), torch.randn(3, 4, 7, 5)
    for parameter in layer.add_content(5).parameters():
        nn.init.normal_(parameter)
    weights = layer(x, need_weights=True, average_attn_weights=average)[1]
    maps = layer.attention_probabilities((7, 5), x=x).flatten(3)
    assert torch.equal(weights, maps.mean(1) if average else maps)
    assert not torch.equal(weights[0], weights[1])
    alone = layer.attention_probabilities((7, 5), x=x[1:2]).flatten(3)
    assert ((maps[1] - alone[0]).abs() <= softmax_bound(alone[0])).all()


def test_weights_are_averaged_over_the_heads_unless_asked_otherwise_and_follow_the_batch() -> None:
    layer, x = strided(alpha=0.5), torch.randn(4, 7, 5)
    output, weights = layer(x, need_weights=True)
    heads = layer(x, need_weights=True, average_attn_weights=False)[1]
    assert (output.shape, weights.shape) == ((6, 4, 4), (4 * 4, 9 * 5))
    assert torch.equal(weights, heads.mean(0))


def test_weights_of_a_transposed_convolution_are_those_of_the_output_size_that_is_asked_for() -> None:
    layer = attention_from_conv(nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), alpha=0.5)
    x = torch.randn(2, 2, 4, 3)
    output, weights = layer(x, (8, 5), need_weights=True)
    assert output.shape[2:] == (8, 5)
    assert weights.shape == (2, 8 * 5, (8 + 2) * (5 + 2))


def test_under_autocast_the_weights_are_those_of_the_rounded_input_as_the_output_is() -> None:
    layer, x = strided(alpha=0.5), torch.randn(2, 4, 7, 5)
    for parameter in layer.add_content(5).parameters():
        nn.init.normal_(parameter)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, weights = layer(x, need_weights=True)
    assert torch.equal(weights, layer(x.bfloat16().float(), need_weights=True)[1])
    assert not torch.equal(weights, layer(x, need_weights=True)[1])
