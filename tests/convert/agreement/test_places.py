"""Sampled outputs of a convolution are those of the whole map."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, convert_model, measure_input
from conv2attn.convert.agreement.layers import LayerPairs
from conv2attn.convert.agreement.places import Places, convolved, measured_at
from conv2attn.convert.engines.convolution import own_call
from conv2attn.convert.layer.checked import checked_layer
from conv2attn.convert.layer.layer import set_engine
from conv2attn.convert.spec import Convolution
from tests.faults import drop_a_head

CONVOLUTIONS: dict[str, tuple[Callable[[], Convolution], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(3, 4, (2, 3), padding=(1, 0)), (2, 3, 7, 9)),
    "strided, dilated, grouped": (lambda: nn.Conv2d(4, 6, 3, stride=(2, 1), dilation=(1, 2), groups=2), (2, 4, 9, 11)),
    "reflecting": (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect", bias=False), (1, 2, 5, 8)),
    "sequence": (lambda: nn.Conv1d(3, 5, 4, padding="same"), (2, 3, 12)),
    "volume": (lambda: nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1)), (2, 2, 3, 5, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=(0, 1), groups=2), (2, 4, 4, 5)),
}


def pair(kind: str) -> tuple[Convolution, Tensor]:
    build, shape = CONVOLUTIONS[kind]
    return build().double(), torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_the_convolution_at_places_is_that_of_the_map(kind: str) -> None:
    conv, x = pair(kind)
    with torch.no_grad():
        output = conv(x)
    layer = checked_layer(attention_from_conv(conv))
    places = Places.draw(output.shape, layer.spec, 200)
    found = convolved(layer.spec, places.windows(layer.spec, x), layer.kernel, layer.bias)
    exact = own_call(layer.spec, x, layer.weight, layer.bias).detach()
    terms = places.windows(layer.spec, x)[0].numel() + 1
    sums = convolved(layer.spec, places.windows(layer.spec, x).abs(), layer.kernel.abs())
    sums = sums if layer.bias is None else sums + layer.bias.detach().abs()
    assert bool(((found - places.of(exact)).abs() <= 2 * terms * 2.0**-53 * sums).all())


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_what_is_measured_at_places_is_within_what_the_map_has(kind: str) -> None:
    conv, x = pair(kind)
    layer = attention_from_conv(conv)
    values, whole = checked_layer(layer), measure_input(layer, [x])
    places = Places.draw(conv(x).shape, values.spec, 5000)
    found = measured_at(values, x, places.windows(values.spec, x))
    assert torch.equal(torch.minimum(found.low, whole.low), found.low)
    assert torch.equal(torch.maximum(found.high, whole.high), found.high)
    assert bool((found.sums <= whole.sums * (1 + 1e-12)).all())
    assert bool((found.sums >= whole.sums * (1 - 1e-12)).all())  # the maps are so small that every pixel is drawn


def test_edges_are_drawn_more_often_than_their_share() -> None:
    conv = attention_from_conv(nn.Conv2d(1, 1, 3, padding=1))
    places = Places.draw((1, 1, 500, 700), conv.spec, 2000)
    rows, columns = places.along
    at_an_edge = (rows < 3) | (rows > 496) | (columns < 3) | (columns > 696)
    assert 0.3 < float(at_an_edge.double().mean()) < 0.6
    assert (int(rows.min()), int(rows.max()), int(columns.max())) == (0, 499, 699)


@pytest.mark.fault
def test_a_dropped_head_is_beyond_the_bound_at_places(monkeypatch: pytest.MonkeyPatch) -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    drop_a_head(monkeypatch)
    model = convert_model(cnn).model.eval()
    set_engine(model, "literal")
    pairs, image = LayerPairs(cnn, model, places=64), torch.randn(1, 3, 9, 11)
    watchers = pairs.watchers()
    with torch.no_grad():
        pairs.recording(lambda: cnn(image))
        with pairs.watching(watchers):
            model(image)
    assert all(not watcher.result().own <= watcher.result().bound for watcher in watchers)
