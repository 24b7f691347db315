"""Layers are swapped wherever the network holds them; a copy holds nothing of its original; what is left is named."""

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

from conv2attn.convert import ConversionError, convert_model, graft, restore_model
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.network.plan import PASSED_BY

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
        """[batch, 3, rows, columns] -> [batch, 5, ...]."""
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
        """[batch, 3, rows, columns] -> [batch, 5]."""
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


EVERYWHERE: dict[str, Any] = {}


class Elsewhere(nn.Module):
    """Runs one layer by a global name, another by its weight, which no walk through its attributes finds."""

    def __init__(self) -> None:
        super().__init__()
        self.known, self.used, self.run = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 3)
        EVERYWHERE["known"] = self.known

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, rows, columns] -> [batch, 2, ...]."""
        x = F.conv2d(EVERYWHERE["known"](x), self.used.weight)
        return self.run.forward(x)  # past its hooks


@pytest.mark.parametrize("inplace", [False, True])
def test_layers_that_are_reached_in_no_known_way_are_named_and_not_counted(inplace: bool) -> None:
    cnn = Elsewhere().eval()
    report = convert_model(cnn, example=IMAGES, inplace=inplace).report
    assert {each.name: each.reason for each in report.idle or ()} == {"known": PASSED_BY, "used": PASSED_BY}
    assert str(report).startswith("1 of 3 layers, 9 heads")
    assert "unknown" in str(convert_model(Elsewhere()).report)
    assert "unknown" not in str(report)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("where", ["known", "used"])
def test_a_graft_on_a_layer_that_would_not_run_is_refused_and_undone(where: str, inplace: bool) -> None:
    cnn = Elsewhere().eval()
    expected, kinds = cnn(IMAGES), [type(module) for module in cnn.modules()]
    with pytest.raises(ConversionError, match=where):
        graft(cnn, where=where, example=IMAGES, inplace=inplace)
    assert [type(module) for module in cnn.modules()] == kinds
    assert torch.equal(cnn(IMAGES), expected)
    assert isinstance(graft(cnn, where="run", example=IMAGES, inplace=inplace).model.run, SelfAttention)
