"""What could make a call of a network do something else than its classes say is named, and what could not is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils._device import DeviceContext

from conv2attn.convert import attention_from_conv
from conv2attn.convert.certificate.propagation.program import (
    changed_part,
    foreign,
    not_followed,
    state_of,
    surroundings,
)


class Plain(nn.Module):
    """A linear layer without a bias, batch normalisation, and an attention layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3, affine=False)
        self.attention = attention_from_conv(nn.Conv2d(1, 1, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Applies all but the attention."""
        y: Tensor = self.norm(self.linear(x))
        return y


class Called(nn.Linear):
    """A linear layer that is called in its own way."""

    def __call__(self, x: Tensor) -> Tensor:
        """Calls it twice."""
        y: Tensor = super().__call__(super().__call__(x))
        return y


class Loud(Tensor):
    """A tensor of one's own."""


def own_forward_and_call(model: Any) -> None:
    model.linear.__dict__.update(_call_impl=model.linear._call_impl, forward=model.linear.forward)


def own_class(model: Any) -> None:
    model.linear = Called(3, 3)


def own_parameter(model: Any) -> None:
    model.linear.weight = nn.Parameter(torch.ones(3, 3).as_subclass(Loud))


def own_buffer(model: Any) -> None:
    model.linear.register_buffer("more", torch.ones(3).as_subclass(Loud))


def hook(model: Any) -> None:
    model.linear.register_forward_hook(lambda *_: None)


def early_hook(model: Any) -> None:
    model.linear.register_forward_pre_hook(lambda *_: None)


def compiled(model: Any) -> None:
    model.linear.compile(backend="eager")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (hook, "it has hooks, which may compute something else"),
        (early_hook, "it has hooks, which may compute something else"),
        (compiled, "it is compiled, by code that is not followed"),
        (own_forward_and_call, "it has its own forward in place of its class's"),
        (own_class, "Called is called in another way than torch.nn.Module"),
        (own_parameter, "its weight is a Loud, not a plain tensor"),
        (own_buffer, "its more is a Loud, not a plain tensor"),
    ],
)
def test_what_stands_in_the_way_of_a_module_is_named(change: Callable[[Any], None], said: str) -> None:
    model = Plain()
    assert not_followed(model) == ()
    change(model)
    assert [(problem.name, problem.reason) for problem in not_followed(model)] == [("linear", said)]


class Doubled(type(attention_from_conv(nn.Conv2d(1, 1, 1)))):  # type: ignore[misc]
    """An attention layer of one's own."""


def test_an_attention_layer_is_one_of_the_library_with_parameters_that_are_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Plain()
    nn.utils.parametrizations.orthogonal(model.attention, "weight")
    assert "its parameters are computed while it runs" in [problem.reason for problem in not_followed(model)]
    model = Plain()
    model.attention.__class__ = Doubled
    assert "Doubled is a subclass of the attention layer" in not_followed(model)[0].reason
    model = Plain()
    monkeypatch.setattr(type(model.attention).__mro__[1], "_values", lambda *_: None)
    assert [problem.reason for problem in not_followed(model)] == ["the attention layer's own code was replaced"]


def test_a_graph_of_torch_is_called_in_a_way_of_its_own_and_a_subclass_of_another_module_is_not() -> None:
    assert not_followed(fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3)))) == ()
    assert [problem.name for problem in not_followed(Called(3, 3))] == [""]


def test_a_default_device_only_says_where_tensors_are_made() -> None:
    with torch.device("cpu"):
        assert list(surroundings()) == []
    device, other = DeviceContext(torch.device("cpu")), object()
    assert foreign([device, other]) == [other]


def test_a_part_that_is_written_to_replaced_or_taken_away_is_told_from_one_that_is_not() -> None:
    network = nn.Sequential(nn.Linear(1, 1))
    network[0].kept = torch.zeros(1)
    before = state_of(network)
    assert changed_part(before, state_of(network)) is None
    network[0].kept.add_(1)
    assert changed_part(before, state_of(network)) == "0.kept"
    before = state_of(network)
    network[0].kept = network[0].kept.clone()
    assert changed_part(before, state_of(network)) == "0.kept"
    before = state_of(network)
    del network[0].kept
    assert changed_part(before, state_of(network)) == "0.kept"


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_of_all_modules_are_named_whichever_they_are(kind: str) -> None:
    handle = getattr(nn.modules.module, f"register_module_{kind}_hook")(lambda *_: None)
    try:
        assert list(surroundings()) == ["there are forward hooks for all modules, which may compute something else"]
    finally:
        handle.remove()
    assert not list(surroundings())
