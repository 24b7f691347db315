"""Layers are swapped wherever the network holds them, a copy holds nothing of its original, what is idle is named."""

from __future__ import annotations

import functools
import weakref
from collections import UserDict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.commands import inputs
from conv2attn.commands.verify_network import verify_network
from conv2attn.convert import ConversionError, certify_images, certify_network, convert_model, graft, restore_model
from conv2attn.convert.agreement.report import certify_report
from conv2attn.convert.certificate.network.certificate import NO_LAYER
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.network.plan import IDLE, PASSED_BY

IMAGES = torch.randn(2, 3, 12, 13)
Pair = namedtuple("Pair", "one other")


@dataclass(frozen=True)
class Steps:
    """Holds two layers, and refuses every change."""

    one: Any
    other: Any


class Slotted:
    """Holds two layers in slots."""

    __slots__ = ("one", "other")

    def __init__(self, one: Any, other: Any) -> None:
        self.one, self.other = one, other


class Chained:
    """Runs two layers in a method."""

    def __init__(self, one: Any, other: Any) -> None:
        self.steps = [one, other]

    def run(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x).relu()
        return x


def called_in_a_closure(one: Any, other: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: other(one(x).relu()).relu()


def called_by_default(one: Any, other: Any) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor, first: Any = one, *, then: Any = other) -> Tensor:
        y: Tensor = then(first(x).relu()).relu()
        return y

    return run


def piped(steps: Iterable[Any], x: Tensor) -> Tensor:
    for step in steps:
        called: Any = step() if isinstance(step, weakref.ref) else step
        x = called(x).relu()
    return x


# How a network holds its two layers, and runs what it holds.
HOLD: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Tensor], Tensor]]] = {
    "list": (lambda one, other: [one, other], piped),
    "dictionary": (lambda one, other: {"a": one, "b": [other]}, lambda held, x: piped([held["a"], *held["b"]], x)),
    "tuples": (lambda one, other: ((one,), (other,)), lambda held, x: piped([*held[0], *held[1]], x)),
    "deque": (lambda one, other: deque([one, other]), piped),
    "named tuple": (Pair, piped),
    "keys": (lambda one, other: {one: "a", other: "b"}, piped),
    "sets": (lambda one, other: [{one}, frozenset([other])], lambda held, x: piped([*held[0], *held[1]], x)),
    "dataclass": (Steps, lambda held, x: piped([held.one, held.other], x)),
    "slots": (Slotted, lambda held, x: piped([held.one, held.other], x)),
    "namespace": (lambda one, other: SimpleNamespace(steps=[one, other]), lambda held, x: piped(held.steps, x)),
    "user dictionary": (lambda one, other: UserDict(a=one, b=other), lambda held, x: piped(held.values(), x)),
    "method of an object": (lambda one, other: Chained(one, other).run, lambda held, x: held(x)),
    "bound methods": (lambda one, other: [one.forward, other.__call__], piped),
    "partial": (lambda one, other: functools.partial(piped, (one, other)), lambda held, x: held(x)),
    "weak references": (lambda one, other: [weakref.ref(one), weakref.ref(other)], piped),
    "closure": (called_in_a_closure, lambda held, x: held(x)),
    "defaults": (called_by_default, lambda held, x: held(x)),
}  # fmt: skip


class Holding(nn.Module):
    """Reaches its layers only through what holds them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.second, self.how = nn.Conv2d(3, 4, (3, 2)), nn.Conv2d(4, 5, 3, stride=2), how
        self.__dict__["held"] = HOLD[how][0](self.first, self.second)

    def forward(self, x: Tensor) -> Tensor:
        return HOLD[self.how][1](self.__dict__["held"], x).mean((2, 3))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("how", HOLD)
def test_layers_become_attention_wherever_they_are_held_and_come_back(how: str, inplace: bool) -> None:
    cnn = Holding(how).eval()
    expected, kept = cnn(IMAGES), {key: value.clone() for key, value in cnn.state_dict().items()}
    model, report = convert_model(cnn, alpha=1.0, example=IMAGES, inplace=inplace)
    assert report.idle == ()
    assert not torch.equal(model(IMAGES), expected)  # soft attention runs
    assert inplace or torch.equal(cnn(IMAGES), expected)  # and not in the original
    back = restore_model(model, tolerance=100.0, inplace=inplace)
    assert torch.equal(back(IMAGES), expected)
    assert all(torch.equal(value, kept[key]) for key, value in back.state_dict().items())


@pytest.mark.parametrize("how", HOLD)
def test_a_copy_holds_nothing_of_its_original(how: str) -> None:
    cnn = Holding(how).eval()
    model = graft(cnn, example=IMAGES, where="second").model
    expected = cnn(IMAGES)
    assert torch.equal(model(IMAGES), expected)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(cnn(IMAGES), expected)
    assert not torch.equal(model(IMAGES), expected)


class FixedDict(dict[str, object]):
    """A configuration as libraries keep it, which refuses every change."""

    def __setitem__(self, *_: object) -> None:
        raise TypeError("it is fixed")

    def update(self, *_: object, **__: object) -> None:
        raise TypeError("it is fixed")


class FixedList(list[object]):
    """A list that refuses every change."""

    def __setitem__(self, *_: object) -> None:
        raise TypeError("it is fixed")


def test_containers_without_layers_are_left_as_they_are() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3))
    cnn.config = FixedDict(sizes=FixedList([3, 4]), nested={"kind": "conv"})  # type: ignore[assignment]
    assert isinstance(convert_model(cnn, inplace=True).model[0], SelfAttention)  # type: ignore[index]


BOXES: dict[int, nn.Module] = {}  # which no attribute of a network leads to


class Passing(nn.Module):
    """Runs one layer by its name, one from a global dictionary, one by its weight; a fourth only while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.run, self.boxed, self.used = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)
        self.auxiliary, self.key = nn.Conv2d(4, 2, 1), len(BOXES)
        BOXES[self.key] = self.boxed

    def forward(self, x: Tensor) -> Tensor:
        x = BOXES[self.key](self.run.forward(x))  # past its hooks
        if self.training:
            self.auxiliary(x)
        return F.conv2d(x, self.used.weight, self.used.bias).mean((2, 3))


@pytest.mark.parametrize("inplace", [False, True])
def test_layers_that_are_passed_by_are_named_and_those_that_nothing_needs_are_not_accused(inplace: bool) -> None:
    report = convert_model(Passing().eval(), example=IMAGES, inplace=inplace).report
    idle = {each.name: each.reason for each in report.idle or ()}
    assert idle == {"boxed": PASSED_BY, "used": PASSED_BY, "auxiliary": IDLE}
    assert f"used {PASSED_BY}" in str(report)
    assert str(report).startswith("2 of 4 layers, 10 heads")
    assert "unknown" in str(convert_model(Passing()).report)
    assert "unknown" not in str(report)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("where", ["boxed", "used", "auxiliary"])
def test_a_graft_on_a_layer_that_would_not_run_is_refused_and_undone(where: str, inplace: bool) -> None:
    cnn = Passing().eval()
    expected, kinds = cnn(IMAGES), [type(module) for module in cnn.modules()]
    with pytest.raises(ConversionError, match=where):
        graft(cnn, where=where, example=IMAGES, inplace=inplace)
    assert [type(module) for module in cnn.modules()] == kinds
    assert torch.equal(cnn(IMAGES), expected)
    assert isinstance(graft(cnn, where="run", example=IMAGES, inplace=inplace).model.run, SelfAttention)


def test_a_network_that_does_not_run_on_the_example_is_converted_and_says_so() -> None:
    model, report = convert_model(Passing().eval(), example=torch.zeros(1, 9, 4, 4))
    assert isinstance(model.run, SelfAttention)
    (problem,) = report.idle or ()
    assert problem.reason.startswith("was not run: ")


def test_a_layer_that_is_passed_by_has_no_certificate_and_is_not_verified() -> None:
    cnn = Passing().eval()
    model, report = convert_model(cnn)
    certified = {layer.name: layer for layer in certify_report(model, report, size=(12, 13)).layers}
    assert certified["used"].certificate is None
    assert PASSED_BY in certified["used"].bound_in_words
    assert certified["auxiliary"].certificate is not None
    check = verify_network(inputs.Pair(cnn, model), inputs.Inputs([IMAGES]))
    assert check.exit_code == 1
    assert check.outcome[0].startswith("Not verified")
    assert [line.split()[0] for line in check.outcome[1:4]] == [each.name for each in check.agreement.idle]


def test_a_network_none_of_whose_layers_runs_is_not_certified() -> None:
    class Used(nn.Module):
        """Uses a layer's weight alone."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            """[batch, 3, rows, columns] -> [batch, 4, rows - 2, columns - 2]."""
            return F.conv2d(x, self.conv.weight)

    model = convert_model(Used().eval()).model
    found = certify_network(model, input_range=(-1, 1), size=(12, 13))
    assert (found.bound, [each.reason for each in found.unbounded]) == (None, [NO_LAYER])
    assert certify_images(model, IMAGES[:1], margins=0).bound is not None  # of the program, whatever it is
