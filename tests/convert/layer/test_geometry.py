"""A layer has the geometry that its convolution's ``forward`` computes, whatever the attributes say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, conv_from_attention, convert_model, restore_model
from conv2attn.convert.engines import ENGINES
from tests.integers import integers, with_integers


@pytest.mark.parametrize(("transposed", "groups"), [(False, 2), (True, 1)])
def test_a_weight_of_other_channels_and_taps_is_converted_as_it_is_computed(transposed: bool, groups: int) -> None:
    kind: Any = nn.ConvTranspose2d if transposed else nn.Conv2d
    conv = kind(6, 4, 3, padding=1, groups=groups, bias=False)
    conv.weight = nn.Parameter(integers(4, 2, 2, 3))
    x = integers(2, 4 if transposed else 2 * groups, 5, 6)
    for engine in ENGINES:
        layer = attention_from_conv(conv, engine=engine)
        assert torch.equal(layer(x), conv(x))
    assert torch.equal(conv_from_attention(layer)(x), conv(x))


@pytest.mark.parametrize("change", [{"stride": 1}, {"dilation": 2, "padding": 2}])
def test_one_integer_stands_for_every_axis(change: dict[str, Any]) -> None:
    conv = with_integers(nn.Conv2d(3, 4, 3, stride=2, padding=1))
    for name, value in change.items():
        setattr(conv, name, value)
    x = integers(2, 3, 9, 8)
    for engine in ENGINES:
        assert torch.equal(attention_from_conv(conv, engine=engine)(x), conv(x))


@pytest.mark.parametrize(("alpha", "engine"), [*((None, engine) for engine in ENGINES), (2.0, "auto")])
def test_no_images_give_no_outputs(alpha: float | None, engine: str) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=alpha, engine=engine)
    assert layer(torch.zeros(0, 2, 5, 6)).shape == (0, 3, 5, 6)
    layer.engine = "auto"
    layer.train_positions()
    assert layer(torch.zeros(0, 2, 5, 6)).shape == (0, 3, 5, 6)


class Tied(nn.Module):
    """An autoencoder whose decoder has its encoder's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.bias = nn.Conv2d(3, 6, 3, padding=1), nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(torch.relu(self.encoder(x)), self.encoder.weight, self.bias, padding=1)


def test_a_weight_that_two_calls_use_is_converted_in_both() -> None:
    network, x = Tied().eval(), torch.randn(2, 3, 12, 12)
    model, report = convert_model(network, trace=True)
    assert len(report.layers) == 2
    assert torch.equal(model(x), network(x))
    assert torch.equal(restore_model(model)(x), network(x))
