"""Where torch makes new tensors by default changes nothing: networks on the CPU stay there.

The device "meta" stands for any other one: a tensor that is made there has no values to compute with.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import (
    attention_from_conv,
    certify_network,
    convert_model,
    restore_model,
)
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.files.report import certify_report

ALPHAS = [None, 2.0]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 9, 8)


@pytest.fixture
def conv() -> nn.Conv2d:
    return nn.Conv2d(3, 4, (3, 2), padding=1)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_layer_computes_the_same_in_every_engine(alpha: float | None, conv: nn.Conv2d, x: Tensor) -> None:
    for name, engine in ENGINES.items():
        if engine.refusal(attention_from_conv(conv, alpha=alpha).values()) is None:
            with torch.device("meta"):
                found = attention_from_conv(conv, alpha=alpha, engine=name)(x)
            assert torch.equal(found, attention_from_conv(conv, alpha=alpha, engine=name)(x))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_network_is_converted_certified_and_restored_alike(alpha: float | None, x: Tensor) -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    with torch.device("meta"):
        model, report = convert_model(cnn, alpha=alpha)
        found, data = model(x), certify_report(model, report).to_json()
        certificate = certify_network(model, input_range=(0, 1), size=(9, 8))
        assert torch.equal(restore_model(model, tolerance=float("inf"))(x), cnn(x))
    model, report = convert_model(cnn, alpha=alpha)
    assert torch.equal(found, model(x))
    assert data == certify_report(model, report).to_json()
    assert certificate == certify_network(model, input_range=(0, 1), size=(9, 8))
