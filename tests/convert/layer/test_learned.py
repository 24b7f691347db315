"""Layers that learn where to look are made in place, keep what they were, and read no value in a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode

from conv2attn.convert import ConversionError, SelfAttention2d, attention_from_conv, conv_from_attention
from tests.bounds import output_bound


def layer_of(alpha: float | None = 2.0, *, trained: bool = True) -> SelfAttention2d:
    layer = attention_from_conv(nn.Conv2d(3, 4, (3, 2), padding=1).double(), alpha=alpha)
    if trained:
        layer.train_positions()
    return layer


X = torch.linspace(-1, 1, 2 * 3 * 5 * 6, dtype=torch.float64).sin().view(2, 3, 5, 6)


def test_positions_are_trained_in_place_and_the_function_stays() -> None:
    layer = layer_of(trained=False)
    before, weight = layer(X), layer.weight
    layer.train_positions()
    assert type(layer) is SelfAttention2d
    assert layer.weight is weight
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias", "log_alpha", "centers"]
    assert (layer(X) - before).abs().max() <= output_bound(layer, X)
    torch.autograd.backward(layer(X).square().sum())
    for name in ("log_alpha", "centers"):
        gradient = layer.get_parameter(name).grad
        assert gradient is not None
        assert gradient.abs().min() > 0
    layer.rest_positions()
    assert torch.equal(layer(X), before)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert conv_from_attention(layer, tolerance=10.0).weight.equal(weight)


def test_a_strength_stays_positive_whatever_a_step_does() -> None:
    layer = layer_of(0.01)
    torch.optim.SGD(layer.parameters(), lr=1e4).step()
    torch.autograd.backward(layer(X).square().sum())
    torch.optim.SGD(layer.parameters(), lr=30.0).step()
    assert (layer.alpha > 0).all()
    assert layer.regime.is_read


def test_training_resumes_from_a_state_dict_bit_for_bit_and_takes_positions_at_rest() -> None:
    layer, other = layer_of(2.7), layer_of(1.0)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(X), layer(X))
    rest = layer_of(3.0, trained=False)
    other.load_state_dict(rest.state_dict())
    assert other.positions.alpha == pytest.approx(rest.positions.alpha, rel=4e-16)
    other.set_positions(alpha=5.0, centers=layer.centers.detach() + 1)
    assert other.positions.alpha == pytest.approx((5.0,) * 6, rel=4e-16)
    assert other.positions.centers[0] == (0.0, 1.0)


def test_positions_and_their_gradients_keep_their_precision() -> None:
    layer = layer_of().float()
    torch.autograd.backward(layer(X.float()).sum())
    layer.bfloat16()
    for name, dtype in (("log_alpha", torch.float32), ("centers", torch.float32), ("weight", torch.bfloat16)):
        parameter = layer.get_parameter(name)
        assert parameter.grad is not None
        assert parameter.dtype == parameter.grad.dtype == dtype
    layer(X.bfloat16())
    narrow = layer_of().float()
    weights = {"log_alpha": narrow.get_parameter("log_alpha").bfloat16()}
    with pytest.raises(ConversionError, match="at least float32"):
        torch.func.functional_call(narrow, weights, (X.float(),))


def test_content_in_the_softmax_of_soft_positions_is_learned_from_zero_on() -> None:
    layer = layer_of(0.5, trained=False)
    content = layer.add_content(2)
    torch.autograd.backward(layer(X).square().sum())
    for parameter in (content.query_weight, content.key_bias):
        assert parameter.grad is not None
        assert parameter.grad.any()


def test_a_layer_whose_weight_is_computed_learns_and_keeps_computing_it() -> None:
    conv = parametrizations.weight_norm(nn.Conv2d(3, 4, 3, padding=1)).double()
    layer = attention_from_conv(conv, alpha=2.0)
    soft = layer(X)
    layer.train_positions()
    assert (layer(X) - soft).abs().max() <= output_bound(layer, X)
    torch.autograd.backward(layer(X).sum())
    names = {name for name, parameter in layer.named_parameters() if parameter.grad is not None}
    assert {"log_alpha", "centers", "parametrizations.weight.original0"} <= names


def test_a_class_of_one_s_own_learns_in_place() -> None:
    class Own(SelfAttention2d):
        pass

    layer = Own(layer_of(trained=False).spec, alpha=2.0).double()
    before = layer(X)
    layer.train_positions()
    layer.add_content(2)
    assert type(layer) is Own
    assert (layer(X) - before).abs().max() <= output_bound(layer, X)


class Watched(TorchDispatchMode):
    """Refuses to give the CPU a value."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "equal", "is_nonzero", "item"), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("alpha", "trained"), [(None, False), (2.0, False), (0.01, False), (2.0, True)])
def test_a_call_reads_no_value_of_a_tensor(alpha: float | None, trained: bool) -> None:
    layer = layer_of(alpha, trained=trained)
    layer(X)  # tables of this size are made
    with Watched():
        torch.autograd.backward(layer(X).sum())
