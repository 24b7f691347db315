"""PyTorch's nn.MultiheadAttention and ConViT's GPSA compute the convolution, look where it looks, and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, attention_from_conv, certify
from conv2attn.convert.export.gpsa import attention_from_gpsa, gpsa_from_attention
from conv2attn.convert.export.multihead import attention_from_multihead, multihead_from_attention
from tests.integers import integers, with_integers


def gpsa_maps(theirs: Any, x: Tensor) -> Tensor:
    maps: Tensor = theirs.attention.attention_probabilities(theirs.tokens(x))[:, :, theirs.places]
    return maps


class Case(NamedTuple):
    """The way there and back, the maps of an image, a convolution and a size for it."""

    there: Callable[..., Any]
    back: Callable[[Any], Any]
    maps: Callable[[Any, Tensor], Tensor]
    conv: nn.Module
    size: tuple[int, ...]


GPSA = gpsa_from_attention, attention_from_gpsa, gpsa_maps
MULTIHEAD = multihead_from_attention, attention_from_multihead, lambda theirs, x: theirs.attention_probabilities(x)
CASES = [
    Case(*GPSA, nn.Conv2d(4, 6, 3, padding=1, groups=2), (6, 6)),
    Case(*GPSA, nn.Conv2d(2, 40, (3, 2), (1, 2), (1, 2), dilation=(2, 1), padding_mode="reflect"), (7, 5)),
    Case(*GPSA, nn.Conv2d(3, 5, 4, padding="same", bias=False), (5, 5)),
    Case(*GPSA, nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), padding=1, groups=2), (3, 7)),
    Case(*MULTIHEAD, nn.Conv2d(4, 6, (3, 2), (1, 2), (1, 2), dilation=(1, 2), groups=2), (7, 9)),
    Case(*MULTIHEAD, nn.Conv2d(1, 40, 3, padding=1, padding_mode="reflect", bias=False), (5, 6)),
    Case(*MULTIHEAD, nn.Conv1d(5, 3, 4, padding="same"), (9,)),
    Case(*MULTIHEAD, nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), padding=1, groups=2), (4, 5)),
]
each_case = pytest.mark.parametrize("case", CASES, ids=[f"{each.there.__name__}-{n}" for n, each in enumerate(CASES)])


@each_case
@torch.no_grad()
def test_the_layer_gives_the_convolutions_bits_on_integers_and_looks_where_it_looks(case: Case) -> None:
    conv = with_integers(case.conv.double(), largest=4)
    layer: Any = attention_from_conv(conv)  # type: ignore[call-overload]
    theirs = case.there(layer, size=case.size)
    x = integers(2, layer.in_channels, *case.size, largest=4, dtype=torch.float64)
    assert torch.equal(theirs(x), conv(x))
    assert torch.equal(case.maps(theirs, x)[1].flatten(), layer.attention_probabilities(case.size).flatten())


@each_case
@torch.no_grad()
def test_random_weights_stay_within_the_certificate(case: Case) -> None:
    for parameter in case.conv.float().parameters():
        nn.init.normal_(parameter)
    layer: Any = attention_from_conv(case.conv)  # type: ignore[call-overload]
    x = torch.rand(3, layer.in_channels, *case.size) * 2 - 1
    difference = (case.there(layer, size=case.size)(x) - case.conv(x)).abs().max()
    assert difference <= certify(layer, input_range=(-1, 1)).bound


@each_case
def test_the_way_back_is_the_layer_bit_for_bit(case: Case) -> None:
    for alpha in (None, 2.0):
        layer: Any = attention_from_conv(case.conv, alpha=alpha)  # type: ignore[call-overload]
        before, after = layer.state_dict(), case.back(case.there(layer, size=case.size)).state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize(
    ("way", "changed"),
    [
        *((GPSA, name) for name in ("qk.weight", "v.weight", "gating_param", "pos_proj.bias")),
        (MULTIHEAD, "k_proj_weight"),
    ],
)
def test_a_changed_tensor_is_named(way: Any, changed: str) -> None:
    theirs = way[0](attention_from_conv(nn.Conv2d(2, 3, 3)), size=(4, 4))
    with torch.no_grad():
        theirs.attention.get_parameter(changed).view(-1)[0] += 0.25
    with pytest.raises(ConversionError, match=changed):
        way[1](theirs)


def with_content() -> nn.Module:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3))
    layer.add_content(4)
    return layer


@pytest.mark.parametrize(
    ("way", "layer", "size", "reason"),
    [
        (GPSA, attention_from_conv(nn.Conv2d(2, 3, 3, padding=1)), (4, 5), r"square images; .* keys are 6x7 pixels"),
        (GPSA, attention_from_conv(nn.Conv1d(2, 3, 3)), (4,), "the layer has 1 axes"),
        (GPSA, attention_from_conv(nn.Conv2d(2, 3, 3).half()), (4, 4), "would round positions"),
        (GPSA, with_content(), (4, 4), "content terms"),
        (MULTIHEAD, attention_from_conv(nn.Conv2d(1024, 8, 5)), (8, 8), "at most 2 GB"),
    ],
)
def test_what_their_layer_cannot_be_is_refused(way: Any, layer: Any, size: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ConversionError, match=reason):
        way[0](layer, size=size)


@pytest.mark.parametrize("way", [gpsa_from_attention, multihead_from_attention])
def test_autocast_is_refused_since_it_would_move_heads(way: Callable[..., nn.Module]) -> None:
    theirs = way(attention_from_conv(nn.Conv2d(2, 3, 3, padding=1)), size=(9, 9))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConversionError, match="outside of autocast"):
        theirs(torch.rand(1, 2, 9, 9))
