"""The factored engine smooths as its formula says, along the axes that have several taps, and refuses what is moved."""

from __future__ import annotations

import torch
from torch import nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.engines import ENGINES, factored
from conv2attn.convert.engines.axes import Axis
from conv2attn.convert.size import Size
from conv2attn.convert.spec import ConvSpec
from tests.positions import move_center, set_alpha

FACTORED = ENGINES["factored"]


def layer_of(alpha: float | None = 2.0) -> SelfAttention2d:
    return attention_from_conv(nn.Conv2d(2, 4, (3, 1), stride=(2, 3), padding=1), alpha=alpha)


def test_it_refuses_what_is_no_smoothing_before_a_convolution() -> None:
    assert FACTORED.refusal(layer_of()) is None
    with_content, tables, trained, moved, mixed = (layer_of() for _ in range(5))
    with_content.add_content(2)
    tables.set_axis_scores(torch.zeros(3, 9), torch.zeros(3, 9))
    trained.train_positions()
    with torch.no_grad():
        move_center(moved, (2, 0), 0.5)
        set_alpha(mixed, 1, 3.0)
    assert FACTORED.refusal(with_content) == "the layer has content terms"
    assert FACTORED.refusal(tables) == "the positional scores are learned tables"
    assert "positions are trained" in str(FACTORED.refusal(trained))
    assert FACTORED.refusal(moved) == "a head's centre is not at its kernel tap"
    assert FACTORED.refusal(mixed) == "the heads do not share one alpha"


def test_along_an_axis_with_one_tap_the_queries_alone_are_smoothed_and_the_stride_is_in_them() -> None:
    spec, size = ConvSpec(2, 4, (3, 1, 2), stride=(2, 3, 4), padding=(1, 2, 0)), Size(8, 9, 10)
    assert [Axis.of_targets(spec, size, axis) for axis in range(3)] == [
        Axis(keys=10, queries=10, start=0, stride=1, first=1, step=1, pixels=8),
        Axis(keys=13, queries=5, start=0, stride=3, first=2, step=1, pixels=9),
        Axis(keys=10, queries=10, start=0, stride=1, first=0, step=1, pixels=10),
    ]
    assert factored._stride(spec) == (2, 1, 4)


def test_a_kernel_of_one_tap_comes_first_where_it_leaves_fewer_channels() -> None:
    first = [
        factored._channels_first(ConvSpec(4, outputs, taps))
        for outputs, taps in ((3, (1, 1)), (4, (1, 1)), (3, (1, 2)))
    ]
    assert first == [True, False, False]
    conv, x = nn.Conv2d(4, 3, 1), torch.randn(2, 4, 6, 5)
    layer = attention_from_conv(conv, alpha=1.0, engine="factored")
    assert conv.bias is not None
    bias = conv.bias.detach().view(-1, 1, 1)
    with torch.no_grad():
        with_bias = layer(x)
        assert layer.bias is not None
        layer.bias.zero_()
        assert torch.equal(with_bias, layer(x) + bias)
    unbiased = attention_from_conv(nn.Conv2d(4, 3, 1, bias=False), alpha=1.0, engine="factored")
    with torch.no_grad():
        unbiased.weight.copy_(layer.weight)
        assert torch.equal(unbiased(x), layer(x))
