"""A convolution whose weights are computed becomes attention whose weights are computed in the same way."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from conv2attn.convert import (
    attention_from_conv,
    conv_from_attention,
    convert_model,
    load_converted,
    restore_model,
    save_converted,
)
from conv2attn.convert.errors import UnsupportedLayerError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.spec import CONVOLUTIONS
from conv2attn.convert.subclasses.computed import detached


class Doubled(nn.Module):
    """A parametrisation of the user's own."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def of_the_users_own(conv: nn.Module) -> nn.Module:
    parametrize.register_parametrization(conv, "weight", Doubled())
    return parametrize.register_parametrization(conv, "bias", Doubled())


def pruned_twice(conv: nn.Module) -> nn.Module:
    prune.random_unstructured(conv, "weight", amount=0.3)
    return prune.l1_unstructured(conv, "weight", amount=0.3)  # type: ignore[no-any-return]


def with_old(make: Callable[..., nn.Module]) -> Callable[[nn.Module], nn.Module]:
    def apply(conv: nn.Module) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return make(conv)

    return apply


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "the user's own": of_the_users_own,
    "weight_norm, by a hook": with_old(nn.utils.weight_norm),
    "spectral_norm, by a hook": with_old(nn.utils.spectral_norm),
    "pruned": lambda conv: prune.l1_unstructured(conv, "weight", amount=0.5),
    "pruned twice": pruned_twice,
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def model(request: pytest.FixtureRequest) -> nn.Sequential:
    conv = request.param(nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=1, groups=2))
    return nn.Sequential(conv, nn.ReLU(), nn.Conv2d(6, 2, 1))


def image() -> Tensor:
    return torch.randn(2, 4, 7, 6)


@pytest.mark.parametrize(
    ("axes", "transposed", "way"),
    [(1, True, "weight_norm"), (2, True, "spectral_norm, by a hook"), (3, False, "pruned")],
)
def test_weights_are_computed_along_any_axes_and_transposed(axes: int, transposed: bool, way: str) -> None:
    conv = CONVOLUTIONS[axes, transposed](4, 6, 3, stride=2, padding=1, groups=2)
    model, x = nn.Sequential(WAYS[way](conv)).eval(), torch.randn(2, 4, *(6,) * axes)
    converted = convert_model(model).model
    assert torch.equal(converted(x), model(x))
    assert list(restore_model(converted).state_dict()) == list(model.state_dict())
    assert torch.equal(restore_model(converted)(x), model(x))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_convolution_is_converted_after_its_first_call_and_refused_before() -> None:
    model, x = nn.Sequential(nn.LazyConvTranspose1d(4, 3, padding=1)), torch.randn(2, 5, 6)
    with pytest.raises(UnsupportedLayerError, match="is lazy and has no weights yet; run it once first"):
        convert_model(model)
    expected = model(x)
    assert torch.equal(convert_model(model).model(x), expected)


def stepped(model: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The output after a step of training, and the gradients of that step."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    model(x).square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    optimizer.step()
    return model(x), gradients


def test_outputs_and_gradients_are_the_convolutions_bit_for_bit(model: nn.Sequential) -> None:
    for training in (False, True):
        converted, x = convert_model(model.train(training)).model, image()
        model.zero_grad()
        (wanted, theirs), (got, ours) = stepped(model, x), stepped(converted, x)
        assert torch.equal(wanted, got)
        assert theirs.keys() == ours.keys()
        assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_the_way_back_restores_the_state_dict_and_what_computes_it(model: nn.Sequential) -> None:
    model(image())  # leaves a tensor of the graph behind, which copy.deepcopy alone refuses
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    converted = convert_model(model).model
    assert set(before) < set(converted.state_dict())
    back = restore_model(converted).train(model.training)
    after = back.state_dict()
    assert set(after) == set(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [type(module).__name__ for module in back.modules()] == [type(module).__name__ for module in model.modules()]
    x = image()
    assert all(torch.equal(one, other) for one, other in zip(stepped(model, x)[:1], stepped(back, x)[:1], strict=True))


some = pytest.mark.parametrize(
    "model", [WAYS[way] for way in ("weight_norm", "spectral_norm, by a hook", "pruned twice")], indirect=True
)


@some
def test_converting_in_place_keeps_the_parameters_themselves(model: nn.Sequential) -> None:
    before = {id(parameter) for parameter in model.parameters()}
    converted = convert_model(model, inplace=True).model
    assert before <= {id(parameter) for parameter in converted.parameters()}
    assert {id(parameter) for parameter in restore_model(converted, inplace=True).parameters()} == before


@some
def test_one_layer_alone_has_weights_of_its_own(model: nn.Sequential) -> None:
    conv: Any = model[0]
    layer, x = attention_from_conv(conv.eval()), image()
    assert torch.equal(layer(x), conv(x))
    assert {id(p) for p in layer.parameters()}.isdisjoint(id(p) for p in conv.parameters())
    assert torch.equal(conv_from_attention(layer)(x), conv(x))


@some
def test_a_folder_is_loaded_with_the_architecture(model: nn.Sequential, tmp_path: Path) -> None:
    fresh, x = copy.deepcopy(model, detached(model)), image()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.mul_(0.5)
    model.eval()(x)
    save_converted(convert_model(model).model, tmp_path / "made")
    assert torch.equal(load_converted(tmp_path / "made", architecture=fresh)(x), model(x))
    restored = open_network(tmp_path / "made").cnn_state()
    assert list(restored) == list(model.state_dict())
    assert all(torch.equal(restored[key], value) for key, value in model.state_dict().items())
