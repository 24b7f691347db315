"""PyTorch's own nn.MultiheadAttention computes the convolution, looks where it looks, and comes back."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from conv2attn.convert import ConversionError, attention_from_conv, certify
from conv2attn.convert.export.multihead import attention_from_multihead, multihead_from_attention
from tests.integers import integers, with_integers


class Case(NamedTuple):
    """A convolution and a size for it."""

    conv: nn.Module
    size: tuple[int, ...]


CASES = [
    Case(nn.Conv2d(4, 6, (3, 2), (1, 2), (1, 2), dilation=(1, 2), groups=2), (7, 9)),
    Case(nn.Conv2d(1, 40, 3, padding=1, padding_mode="reflect", bias=False), (5, 6)),
    Case(nn.Conv1d(5, 3, 4, padding="same"), (9,)),
    Case(nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), padding=1, groups=2), (4, 5)),
]
each_case = pytest.mark.parametrize("case", CASES, ids=[type(each.conv).__name__ for each in CASES])


@each_case
@torch.no_grad()
def test_the_module_gives_the_convolutions_bits_on_integers_and_looks_where_the_layer_looks(case: Case) -> None:
    conv = with_integers(case.conv.double(), largest=4)
    layer: Any = attention_from_conv(conv)  # type: ignore[call-overload]
    module = multihead_from_attention(layer, size=case.size)
    x = integers(2, layer.in_channels, *case.size, largest=4, dtype=torch.float64)
    assert torch.equal(module(x), conv(x))
    maps = module.attention_probabilities(x)[1]
    assert torch.equal(maps.flatten(), layer.attention_probabilities(case.size).flatten())


@each_case
@torch.no_grad()
def test_random_weights_stay_within_the_certificate(case: Case) -> None:
    for parameter in case.conv.float().parameters():
        nn.init.normal_(parameter)
    layer: Any = attention_from_conv(case.conv)  # type: ignore[call-overload]
    x = torch.rand(3, layer.in_channels, *case.size) * 2 - 1
    difference = (multihead_from_attention(layer, size=case.size)(x) - case.conv(x)).abs().max()
    assert difference <= certify(layer, input_range=(-1, 1)).bound


@each_case
def test_the_way_back_is_the_layer_bit_for_bit(case: Case) -> None:
    for alpha in (None, 2.0):
        layer: Any = attention_from_conv(case.conv, alpha=alpha)  # type: ignore[call-overload]
        before = layer.state_dict()
        after = attention_from_multihead(multihead_from_attention(layer, size=case.size)).state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_changed_tensor_is_named() -> None:
    module = multihead_from_attention(attention_from_conv(nn.Conv2d(2, 3, 3)), size=(4, 4))
    with torch.no_grad():
        module.attention.get_parameter("k_proj_weight").view(-1)[0] += 0.25
    with pytest.raises(ConversionError, match="k_proj_weight"):
        attention_from_multihead(module)


def with_content() -> nn.Module:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3))
    layer.add_content(4)
    return layer


@pytest.mark.parametrize(
    ("layer", "size", "reason"),
    [
        (attention_from_conv(nn.Conv2d(2, 3, 3).half()), (4, 4), "would round positions"),
        (with_content(), (4, 4), "content terms"),
        (attention_from_conv(nn.Conv2d(1024, 8, 5)), (8, 8), "at most 2 GB"),
    ],
)
def test_a_layer_that_the_module_cannot_be_is_refused(layer: Any, size: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ConversionError, match=reason):
        multihead_from_attention(layer, size=size)


def test_autocast_is_refused_since_it_would_move_heads() -> None:
    module = multihead_from_attention(attention_from_conv(nn.Conv2d(2, 3, 3, padding=1)), size=(9, 9))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConversionError, match="outside of autocast"):
        module(torch.rand(1, 2, 9, 9))
