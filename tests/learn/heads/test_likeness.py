"""How convolutional a head is: planted taps, the norm's sharpness, and layers of both kinds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import GeometryError
from conv2attn.convert.layer.construction import attention_from_conv
from conv2attn.learn.heads.attention import HeadAttention
from conv2attn.learn.heads.encodings import Content, IsotropicGaussian
from conv2attn.learn.heads.likeness import how_convolutional, layer_likeness

PLANTED = 1000
TAPS = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2))


def planted_layer(taps: torch.Tensor, alpha: torch.Tensor, padding: int) -> HeadAttention:
    """Heads with these taps [heads, 2] as centres and this sharpness [heads]."""
    positions = IsotropicGaussian(len(taps))
    with torch.no_grad():
        positions.centers.copy_(taps)
        positions.log_alpha.copy_(alpha.log())
    return HeadAttention(1, 1, positions, padding=padding)


def test_every_planted_tap_is_recognised_however_soft_its_head_is() -> None:
    rng = np.random.default_rng(18)
    recognised = 0
    for _ in range(PLANTED // 10):
        reach = int(rng.integers(1, 4))
        size = Size(*rng.integers(2, 10, size=2).tolist())
        taps = torch.from_numpy(rng.integers(-reach, reach + 1, size=(10, 2)))
        alpha = torch.from_numpy(np.exp(rng.uniform(math.log(0.01), math.log(128), size=10))).float()
        found = layer_likeness(planted_layer(taps, alpha, reach), size).heads
        recognised += sum(head.tap == tuple(tap) for head, tap in zip(found, taps.tolist(), strict=True))
        assert all(head.inside == 1 for head in found)
    assert recognised == PLANTED


def test_without_padding_the_taps_of_a_sharp_head_are_recognised() -> None:
    for alpha in (1.0, 8.0, 128.0):
        found = layer_likeness(planted_layer(TAPS, torch.full((9,), alpha), 0), Size(4, 5)).heads
        assert [head.tap for head in found] == list(map(tuple, TAPS.tolist()))
        assert [head.distance == 1 for head in found] == [head.inside < 1 for head in found]
        assert [head.inside for head in found] == [(4 - abs(r)) * (5 - abs(c)) / 20 for r, c in TAPS.tolist()]


def test_a_converted_layer_is_its_convolution() -> None:
    conv = nn.Conv2d(2, 3, (3, 5), padding=(1, 2), stride=(2, 1), dilation=(1, 2))
    likeness = layer_likeness(attention_from_conv(conv), Size(7, 9))
    assert [head.tap for head in likeness.heads] == [(r, c) for r in (-1, 0, 1) for c in (-4, -2, 0, 2, 4)]
    assert {(head.share, head.distance, head.spread) for head in likeness.heads} == {(1.0, 0.0, 0.0)}
    assert likeness.distance == 0
    assert likeness.one_pixel == 1


def test_the_distance_is_reached_by_an_input_that_varies_by_1() -> None:
    maps = torch.tensor([[[0.5, 0.25, 0.25], [0.125, 0.625, 0.25], [0.0, 0.25, 0.75]]], dtype=torch.float64)
    (head,) = how_convolutional(maps, Size(1, 3))
    worst = torch.eye(3, dtype=torch.float64)  # for each query, 1 at the tap's key and 0 elsewhere
    assert head.tap == (0, 0)
    assert head.distance == (maps[0] @ worst - worst).abs().max().item() == 0.5
    assert head.share == (0.5 + 0.625 + 0.75) / 3


def test_a_layer_is_no_further_from_the_convolution_than_its_distance() -> None:
    torch.manual_seed(0)
    layer = HeadAttention(2, 4, planted_layer(TAPS, torch.full((9,), 1.5), 1).positions, padding=1).double()
    with torch.no_grad():
        layer.weight[1] *= 20  # the distance is that of the channel that is furthest
    likeness = layer_likeness(layer, Size(5, 6))
    kernel = layer.weight.detach().transpose(1, 2).unflatten(2, (3, 3))
    largest = 0.0
    for x in torch.randint(0, 2, (200, 5, 6, 2)).double():
        conv = F.conv2d(x.permute(2, 0, 1), kernel, layer.bias, padding=1).permute(1, 2, 0)
        largest = max(largest, (layer(x.unsqueeze(0))[0] - conv).abs().max().item())
    assert 0.1 * likeness.distance < largest <= likeness.distance


def test_a_layer_with_content_is_compared_on_the_images_it_sees() -> None:
    torch.manual_seed(0)
    content = Content(2, 3, key_dim=4, reach=6)
    layer = HeadAttention(3, 3, IsotropicGaussian(2), content=content, padding=1)
    x = torch.randn(2, 4, 4, 3)
    both, first = layer_likeness(layer, Size(4, 4), x), layer_likeness(layer, Size(4, 4), x[:1])
    assert all(a.distance >= b.distance for a, b in zip(both.heads, first.heads, strict=True) if a.tap == b.tap)
    assert both != first


def test_spread_and_nonlocality_are_in_pixels() -> None:
    maps = torch.tensor([[[0.5, 0.0, 0.5]] * 3])
    (head,) = how_convolutional(maps, Size(1, 3))
    assert head.spread == 1.0
    assert head.nonlocality == (1.0 + 1.0 + 1.0) / 3


@pytest.mark.parametrize("maps", [torch.ones(1, 6, 6), torch.eye(5).unsqueeze(0)])
def test_what_is_no_attention_map_is_refused(maps: torch.Tensor) -> None:
    with pytest.raises(GeometryError, match="maps must be"):
        how_convolutional(maps, Size(2, 3))
