"""The factored engine smooths as its formula says, along the axes that have several taps, and refuses what is moved."""

from __future__ import annotations

import torch
from torch import nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.engines.axes import Axis
from conv2attn.convert.size import Size
from conv2attn.convert.spec import ConvSpec
from tests.positions import move_center, set_alpha

FACTORED = ENGINES["factored"]


def layer_of(alpha: float | None = 2.0) -> SelfAttention2d:
    return attention_from_conv(nn.Conv2d(2, 4, (3, 1), stride=(2, 3), padding=1), alpha=alpha)


def test_it_refuses_what_is_no_smoothing_before_a_convolution() -> None:
    assert FACTORED.refusal(layer_of()) is None
    moved, mixed = layer_of(), layer_of()
    with torch.no_grad():
        move_center(moved, (2, 0), 0.5)
        set_alpha(mixed, 1, 3.0)
    assert FACTORED.refusal(moved) == "a head's centre is not at its kernel tap"
    assert FACTORED.refusal(mixed) == "the heads do not share one alpha"


def test_along_an_axis_with_one_tap_the_queries_alone_are_smoothed_and_the_stride_is_in_them() -> None:
    spec, size = ConvSpec(2, 4, (3, 1, 2), stride=(2, 3, 4), padding=(1, 2, 0)), Size(8, 9, 10)
    assert [Axis.of_targets(spec, size, axis) for axis in range(3)] == [
        Axis(keys=10, queries=10, start=0, stride=1, first=1, step=1, pixels=8),
        Axis(keys=13, queries=5, start=0, stride=3, first=2, step=1, pixels=9),
        Axis(keys=10, queries=10, start=0, stride=1, first=0, step=1, pixels=10),
    ]
