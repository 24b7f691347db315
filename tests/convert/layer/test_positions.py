"""Positions at rest are numbers: they are set, shown, saved and loaded, and no graph or optimizer sees them.

Positions that are trained, content and tables are set in place: a layer keeps what it was, and a call reads no value.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode

from conv2attn.convert import SelfAttention2d, attention_from_conv, conv_from_attention
from tests.bounds import output_bound

CONV = nn.Conv2d(4, 6, (3, 2), padding=1)


def layer_of(alpha: float | None = 2.0) -> SelfAttention2d:
    return attention_from_conv(CONV, alpha=alpha)


def test_positions_are_shown_as_ordinary_numbers() -> None:
    layer = layer_of()
    assert type(layer.alpha * 2) is type(copy.deepcopy(layer.alpha)) is type(layer.state_dict()["alpha"]) is Tensor
    assert (layer.alpha.dtype, layer.alpha.device) == (torch.float32, layer.weight.device)
    assert layer.alpha.tolist() == list(layer.positions.alpha)
    assert layer.centers.tolist() == [list(center) for center in layer.positions.centers]
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}
    assert not list(layer.named_buffers())
    assert layer.half().alpha.dtype == torch.float32
    assert layer.double().centers.dtype == torch.float64
    assert layer.to("meta").alpha.tolist() == [2.0] * 6


def test_what_is_not_said_stays() -> None:
    layer = layer_of(None)
    layer.set_positions(centers=layer.centers + 0.5)
    assert layer.alpha_follows_dtype
    assert layer.positions.alpha == (128.0,) * 6
    layer.set_positions(alpha=3)
    assert layer.positions.centers[0] == (-0.5, 0.5)
    layer.set_positions(alpha=None, centers=layer.spec.tap_offsets)
    assert layer.double().regime.is_exact


def test_a_state_dict_keeps_them_and_an_alpha_that_follows_the_precision_follows_the_new_one() -> None:
    soft, exact = layer_of(), layer_of(None)
    soft.set_positions(alpha=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], centers=soft.centers / 4)
    other = layer_of(7.0)
    other.load_state_dict(soft.state_dict())
    assert other.positions == soft.positions
    wide = SelfAttention2d(exact.spec, dtype=torch.float64)
    wide.load_state_dict(exact.state_dict())
    assert wide.regime.is_exact


def test_distributed_checkpoints_keep_them() -> None:
    model: Any = nn.Sequential(layer_of())
    model[0].set_positions(alpha=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    state: dict[str, Any] = {key: copy.deepcopy(value) for key, value in get_model_state_dict(model).items()}
    assert list(state) == ["0.weight", "0.bias", "0.alpha", "0.centers"]
    state["0.alpha"][:] = 4.0
    set_model_state_dict(model, state)
    assert model[0].positions.alpha == (4.0,) * 6


def test_a_weight_of_another_dtype_in_one_call_keeps_the_numbers() -> None:
    layer, x = layer_of(None), torch.randint(-3, 4, (2, 4, 5, 6)).double()
    weights = {name: parameter.double() for name, parameter in layer.named_parameters()}
    assert torch.equal(torch.func.functional_call(layer, weights, (x,)), copy.deepcopy(CONV).double()(x))


def wide_layer(alpha: float | None = 2.0, *, trained: bool = True) -> SelfAttention2d:
    layer = attention_from_conv(nn.Conv2d(3, 4, (3, 2), padding=1).double(), alpha=alpha)
    if trained:
        layer.train_positions()
    return layer


X = torch.linspace(-1, 1, 2 * 3 * 5 * 6, dtype=torch.float64).sin().view(2, 3, 5, 6)


def test_positions_are_trained_in_place_and_the_function_stays() -> None:
    layer = wide_layer(trained=False)
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
    layer = wide_layer(0.01)
    torch.optim.SGD(layer.parameters(), lr=1e4).step()
    torch.autograd.backward(layer(X).square().sum())
    torch.optim.SGD(layer.parameters(), lr=30.0).step()
    assert (layer.alpha > 0).all()
    assert layer.regime.is_read


def test_training_resumes_from_a_state_dict_bit_for_bit_and_takes_positions_at_rest() -> None:
    layer, other = wide_layer(2.7), wide_layer(1.0)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(X), layer(X))
    rest = wide_layer(3.0, trained=False)
    other.load_state_dict(rest.state_dict())
    assert other.positions.alpha == pytest.approx(rest.positions.alpha, rel=4e-16)
    other.set_positions(alpha=5.0, centers=layer.centers.detach() + 1)
    assert other.positions.alpha == pytest.approx((5.0,) * 6, rel=4e-16)
    assert other.positions.centers[0] == (0.0, 1.0)


def test_positions_and_their_gradients_keep_their_precision() -> None:
    layer = wide_layer().float()
    torch.autograd.backward(layer(X.float()).sum())
    layer.bfloat16()
    for name, dtype in (("log_alpha", torch.float32), ("centers", torch.float32), ("weight", torch.bfloat16)):
        parameter = layer.get_parameter(name)
        assert parameter.grad is not None
        assert parameter.dtype == parameter.grad.dtype == dtype
    layer(X.bfloat16())


def test_content_in_the_softmax_of_soft_positions_is_learned_from_zero_on() -> None:
    layer = wide_layer(0.5, trained=False)
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

    layer = Own(wide_layer(trained=False).spec, alpha=2.0).double()
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
    layer = wide_layer(alpha, trained=trained)
    layer(X)  # tables of this size are made
    with Watched():
        torch.autograd.backward(layer(X).sum())
