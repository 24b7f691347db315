"""The structures that people try first convert as they are, and compute the same.

Conversion leaves "auto" with the very convolution call of the CNN, so there equality is bitwise, for outputs and
gradients. The literal engine adds up in another order: layer by layer it is within its certificate on the features
that the network really sees.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, certify, conv_from_attention, convert_model, restore_model
from tests.small_models import SMALL_MODELS, assert_same_state

SIZE = (2, 3, 12, 10)

each_model = pytest.mark.parametrize("name", SMALL_MODELS)


def network(name: str, *, training: bool = False) -> nn.Module:
    """A small network that has seen one batch, so that its running statistics are its own."""
    model = SMALL_MODELS[name]()
    model(torch.randn(SIZE))
    return model.train(training)


def layer_inputs(model: nn.Module, x: Tensor) -> list[tuple[SelfAttention2d, Tensor]]:
    """Each attention layer with the features it gets when the model gets x."""
    seen: list[tuple[SelfAttention2d, Tensor]] = []
    layers = [layer for layer in model.modules() if isinstance(layer, SelfAttention2d)]
    handles = [layer.register_forward_hook(lambda layer, args, _: seen.append((layer, args[0]))) for layer in layers]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    assert [layer for layer, _ in seen] == layers
    return seen


def count(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(module, kind) for module in model.modules())


@each_model
def test_every_convolution_becomes_attention_nothing_else_changes_and_the_network_comes_back(name: str) -> None:
    model = network(name)
    converted, report = convert_model(model)
    convolutions = count(model, nn.Conv2d)
    assert (count(converted, nn.Conv2d), count(converted, SelfAttention2d)) == (0, convolutions)
    assert (len(report.layers), report.skipped) == (convolutions, ())
    replaced = {nn.Conv2d: SelfAttention2d}
    expected = [(key, replaced.get(type(module), type(module))) for key, module in model.named_modules()]
    assert [(key, type(module)) for key, module in converted.named_modules()] == expected
    restored = restore_model(converted)
    assert repr(restored) == repr(model)
    assert_same_state(restored, model)


@each_model
def test_outputs_statistics_and_gradients_are_bitwise_equal_under_auto(name: str) -> None:
    for training, memory_format in ((True, torch.contiguous_format), (False, torch.channels_last)):
        model = network(name, training=training)
        converted = convert_model(model).model
        x = torch.randn(SIZE).to(memory_format=memory_format)
        expected, observed = model(x), converted(x)
        assert observed.shape[1] == 5
        assert torch.equal(observed, expected)
        state = converted.state_dict()  # running statistics were updated alike
        assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
        for output in (expected, observed):
            torch.autograd.backward(output.square().mean())
        trained = [key for key, parameter in converted.named_parameters() if parameter.requires_grad]
        assert trained == [key for key, _ in model.named_parameters()]
        for key, parameter in model.named_parameters():
            gradient = converted.get_parameter(key).grad
            assert parameter.grad is not None
            assert gradient is not None
            assert torch.equal(gradient, parameter.grad), key


@each_model
def test_each_layer_stays_within_its_certificate_on_its_own_features(name: str) -> None:
    converted = convert_model(network(name), engine="literal").model
    for layer, features in layer_inputs(converted, torch.randn(SIZE)):
        bound = certify(layer, input_range=(features.min().item(), features.max().item())).per_channel
        difference = (layer(features).double() - conv_from_attention(layer)(features).double()).abs().amax((0, 2, 3))
        assert (difference <= torch.tensor(bound)).all(), layer
