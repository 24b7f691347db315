"""No input takes a trained layer further from a convolution than the bound, and the worst ones come near it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.attention.layer import SelfAttention
from conv2attn.convert.certificate.distance import distance_from_convolution
from conv2attn.convert.errors import ConversionError
from tests.convert.certificate.trained import CASES, ROUNDING, trained

RANGES = [(-1.0, 1.0), (0.0, 3.0), (2.0, 2.5)]


def worst_inputs(conv: nn.Conv2d, layer: SelfAttention, low: float, high: float) -> Tensor:
    """Random inputs, and those that push an output as far as a linear layer can be pushed."""
    x = torch.rand(8, 3, 9, 11, dtype=torch.float64) * (high - low) + low
    found = [x, torch.where(x > (low + high) / 2, high, low)]
    for row, column in ((0, 0), (1, 2), (-1, -1)):
        one = x[:1].clone().requires_grad_(True)
        (layer(one) - conv(one))[0, 0, row, column].backward()
        assert one.grad is not None
        found.append(torch.where(one.grad > 0, high, low))
    return torch.cat(found)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("ends", RANGES)
def test_no_input_is_beyond_the_distance(case: str, gated: bool, ends: tuple[float, float]) -> None:
    conv, layer = trained(case, gated=gated)
    bound = distance_from_convolution(layer, input_range=ends, weight=conv.weight, bias=conv.bias)
    x = worst_inputs(conv, layer, *ends)
    with torch.no_grad():
        apart = (layer(x) - conv(x)).abs().amax((0, 2, 3))
    assert bool((apart <= torch.tensor(bound.per_channel) + ROUNDING).all())
    assert bound.bound == max(bound.per_channel)
    if not gated and case == "padded":
        assert float(apart[0]) > bound.per_channel[0] / 4


@pytest.mark.parametrize("alpha", [0.6, 2.0, 8.0])
def test_of_a_layer_that_was_not_trained_it_is_the_tail_of_the_certificate(alpha: float) -> None:
    torch.manual_seed(0)
    layer = attention_from_conv(nn.Conv2d(3, 5, 3, padding=1).double(), alpha=alpha)
    tail = certify(layer, input_range=(-1, 1)).tail
    assert distance_from_convolution(layer, input_range=(-1, 1)).bound == pytest.approx(tail, rel=0.3)


def test_heads_that_reach_over_everything_still_have_a_bound() -> None:
    conv, layer = trained("padded", gated=False)
    with torch.no_grad():
        layer.alpha.fill_(2.0**-12)
    bound = distance_from_convolution(layer, input_range=(-1, 1), weight=conv.weight, bias=conv.bias)
    x = worst_inputs(conv, layer, -1, 1)
    with torch.no_grad():
        apart = (layer(x) - conv(x)).abs().amax((0, 2, 3))
    assert bool((apart <= torch.tensor(bound.per_channel)).all())


def test_what_has_no_known_distance_is_refused() -> None:
    conv, layer = trained("padded", gated=False)
    with pytest.raises(ConversionError, match="must have a weight"):
        distance_from_convolution(layer, input_range=(-1, 1), weight=conv.weight[:, :1])
    with pytest.raises(ConversionError, match="bias as the layer"):
        distance_from_convolution(layer, input_range=(-1, 1), weight=conv.weight)
    content = layer.add_content(2)
    assert distance_from_convolution(layer, input_range=(-1, 1)).bound > 0  # content that is off
    with torch.no_grad():
        content.query_weight.fill_(1.0)
    with pytest.raises(ConversionError, match="without a gate"):
        distance_from_convolution(layer, input_range=(-1, 1))
