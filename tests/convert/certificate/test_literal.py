"""Literal attention at sampled queries is the convolution's within its certificate, and is computed from all keys."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, convert_model
from conv2attn.convert.certificate import literal as sampled
from conv2attn.convert.certificate.literal import QUERIES, inputs_of_layers, sample_layer
from conv2attn.convert.engines.literal import attention_probabilities
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.proofs.campaign.strategies import convolutions_with_input


@given(convolutions_with_input(), st.sampled_from([None, 2.0, 5.3]))
def test_literal_attention_at_some_queries_is_within_its_certificate(
    case: tuple[nn.Conv2d, Tensor], alpha: float | None
) -> None:
    conv, x = case
    layer = attention_from_conv(conv, alpha=alpha)
    sample = sample_layer(layer, x)
    expected = conv(x[:1]).detach()
    assert sample.queries == min(QUERIES, expected[0, 0].numel())
    assert sample.difference <= sample.bound
    assert sample.outputs == pytest.approx(float(expected.abs().max()), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv3d, nn.ConvTranspose2d])
def test_on_integers_it_is_the_convolution_bit_for_bit(kind: type[nn.Conv2d]) -> None:
    torch.manual_seed(0)
    conv = kind(4, 6, 3, stride=2, padding=1, groups=2)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    x = torch.randint(-4, 5, (2, 4, *(7, 6, 5)[: conv.weight.ndim - 2])).float()
    sample = sample_layer(attention_from_conv(conv), x)
    assert (sample.difference, sample.outputs) == (0.0, float(conv(x[:1]).detach().abs().max()))


def test_it_is_computed_in_chunks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=1.5), torch.randn(1, 2, 9, 10)
    whole = sample_layer(layer, x)
    monkeypatch.setattr(sampled, "_SCORES", 1)
    assert sample_layer(layer, x).difference == pytest.approx(whole.difference, abs=whole.bound)


def test_a_head_that_looks_elsewhere_is_seen() -> None:
    """The fault is planted in the probabilities, of which nothing else of the layer knows."""
    torch.manual_seed(0)
    layer, x = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1)), torch.randn(1, 2, 9, 10)
    right = attention_probabilities
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampled, "attention_probabilities", lambda *given: right(*given).roll(1, 1))
        sample = sample_layer(layer, x)
    assert sample.difference > 100 * sample.bound


def test_inputs_are_those_of_the_layers_first_calls_and_the_network_is_as_before() -> None:
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3)).train()
    model, _ = convert_model(cnn)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.randn(1, 1, 7, 8)
    found = inputs_of_layers(model, x)
    assert torch.equal(found["0"], x)
    assert found["2"].shape == (1, 2, 5, 6)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(layer._forward_pre_hooks for layer in model.modules() if isinstance(layer, SelfAttention))


def test_a_network_that_does_not_run_or_takes_too_long_is_refused() -> None:
    model, _ = convert_model(nn.Sequential(nn.Conv2d(1, 2, 3)))
    with pytest.raises(ConversionError, match="does not run on an image of 3x5x5"):
        inputs_of_layers(model, torch.zeros(1, 3, 5, 5))
    with pytest.raises(ConversionError, match="too much time"):
        inputs_of_layers(model, torch.zeros(1, 1, 50, 50), allowed=lambda layer, x: x.numel() < 2500)
