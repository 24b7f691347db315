"""Positions at rest are numbers: they are set, shown, saved and loaded, and no graph or optimizer sees them."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.optim.swa_utils import AveragedModel

from conv2attn.convert import ConversionError, SelfAttention2d, attention_from_conv

CONV = nn.Conv2d(4, 6, (3, 2), padding=1)


def layer_of(alpha: float | None = 2.0) -> SelfAttention2d:
    return attention_from_conv(CONV, alpha=alpha)


WRITES: dict[str, Callable[[SelfAttention2d], Any]] = {
    "an attribute": lambda layer: setattr(layer, "alpha", 1.0),
    "a parameter": lambda layer: setattr(layer, "centers", nn.Parameter(torch.zeros(6, 2))),
    "in place": lambda layer: layer.alpha.fill_(1.0),
    "an entry": lambda layer: layer.centers.__setitem__(0, 1.0),
    "its gradient": lambda layer: layer.alpha.requires_grad_(),
    "its gradient, as an attribute": lambda layer: setattr(layer.alpha, "requires_grad", True),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_would_be_in_vain_is_refused_and_names_what_sets_and_what_trains(write: str) -> None:
    layer = layer_of()
    before = layer.positions
    with pytest.raises(ConversionError, match="set_positions") as refusal:
        WRITES[write](layer)
    assert "melt" in str(refusal.value)
    assert layer.positions == before


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
    with pytest.raises(RuntimeError, match="Missing key"):
        layer_of().load_state_dict({"weight": CONV.weight, "bias": CONV.bias})
    layer_of().load_state_dict({"weight": CONV.weight, "bias": CONV.bias}, strict=False)


def test_copies_pickles_averages_and_distributed_checkpoints_keep_them() -> None:
    model: Any = nn.Sequential(layer_of())
    model[0].set_positions(alpha=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    averaged: Any = AveragedModel(model, use_buffers=True)
    averaged.update_parameters(model)
    replicas: Any = nn.DataParallel(model)
    for kept in (copy.deepcopy(model), torch.load(file, weights_only=False), averaged.module, replicas.module):
        assert kept[0].positions == model[0].positions
    state: dict[str, Any] = {key: copy.deepcopy(value) for key, value in get_model_state_dict(model).items()}
    assert list(state) == ["0.weight", "0.bias", "0.alpha", "0.centers"]
    state["0.alpha"][:] = 4.0
    set_model_state_dict(model, state)
    assert model[0].positions.alpha == (4.0,) * 6


def test_a_weight_of_another_dtype_in_one_call_keeps_the_numbers() -> None:
    layer, x = layer_of(None), torch.randint(-3, 4, (2, 4, 5, 6)).double()
    weights = {name: parameter.double() for name, parameter in layer.named_parameters()}
    assert torch.equal(torch.func.functional_call(layer, weights, (x,)), copy.deepcopy(CONV).double()(x))
