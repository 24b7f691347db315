"""Where torch makes new tensors by default changes nothing: networks on the CPU stay there.

The device "meta" stands for any other one: a tensor that is made there has no values to compute with.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import (
    SelfAttention2d,
    alpha_for,
    attention_from_conv,
    certify,
    certify_data,
    certify_network,
    conv_from_attention,
    convert_model,
    restore_model,
)
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.files.report import CertifiedReport

ALPHAS = [None, 2.0, 0.1]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 9, 8)


@pytest.fixture
def conv() -> nn.Conv2d:
    return nn.Conv2d(3, 4, (3, 2), padding=1)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_layer_computes_the_same_in_every_engine(alpha: float | None, conv: nn.Conv2d, x: Tensor) -> None:
    for name, engine in ENGINES.items():
        if engine.refusal(attention_from_conv(conv, alpha=alpha)) is None:
            with torch.device("meta"):
                found = attention_from_conv(conv, alpha=alpha, engine=name)(x)
            assert torch.equal(found, attention_from_conv(conv, alpha=alpha, engine=name)(x))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_layer_shows_the_same_maps_and_comes_back(alpha: float | None, conv: nn.Conv2d, x: Tensor) -> None:
    layer = attention_from_conv(conv, alpha=alpha)
    with torch.device("meta"):
        maps = layer.attention_probabilities((5, 4))
        assert torch.equal(conv_from_attention(layer, tolerance=float("inf"))(x), conv(x))
    assert torch.equal(maps, layer.attention_probabilities((5, 4)))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_layer_has_the_same_certificate(alpha: float | None, conv: nn.Conv2d, x: Tensor) -> None:
    def found(layer: SelfAttention2d) -> tuple[object, ...]:
        return certify(layer, input_range=(-1, 1)), certify_data(layer, [x]), alpha_for(0.5, layer, (-1, 1))

    with torch.device("meta"):
        elsewhere = found(attention_from_conv(conv, alpha=alpha))
    assert elsewhere == found(attention_from_conv(conv, alpha=alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_network_is_converted_certified_and_restored_alike(alpha: float | None, x: Tensor) -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    with torch.device("meta"):
        model, report = convert_model(cnn, alpha=alpha)
        found, data = model(x), CertifiedReport.of(model, report).to_json()
        certificate = certify_network(model, input_range=(0, 1), size=(9, 8))
        assert torch.equal(restore_model(model, tolerance=float("inf"))(x), cnn(x))
    model, report = convert_model(cnn, alpha=alpha)
    assert torch.equal(found, model(x))
    assert data == CertifiedReport.of(model, report).to_json()
    assert certificate == certify_network(model, input_range=(0, 1), size=(9, 8))
