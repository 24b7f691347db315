"""Which attention layers of a network run on an input, and which are passed by.

A converted layer stands where the convolution had its name, and where plain lists and dictionaries of the model's
modules held it. Code that reaches the convolution another way does not meet it: an object of its own that holds it
calls the convolution that is left there; ``F.conv2d(x, self.conv.weight)`` uses the weight alone. Then a convolution
computes with the layer's very parameter outside of the layer, which is seen here. A layer that nothing needs on an
input, such as an auxiliary head in training only, merely does not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..errors import Problem
from ..layer.layer import SelfAttention
from ..names import modules_of

IDLE = "did not run on this input"
PASSED_BY = f"{IDLE} (held by an object of its own? its weight used by a function? trace=True converts calls)"
_CONVOLUTIONS = frozenset(getattr(torch, f"conv{kind}{axes}d") for kind in ("", "_transpose") for axes in (1, 2, 3))


class Runs:
    """Runs of a network's attention layers.

    Attributes:
        ran: Names of the layers that ran, the first of each.
        passed_by: Names of the layers whose weight a convolution used outside of the layer.
    """

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.passed_by: set[str] = set()

    def idle(self, model: nn.Module) -> tuple[Problem, ...]:
        """The layers that did not run, each with the reason, in the model's order."""
        return tuple(
            Problem(names[0], PASSED_BY if names[0] in self.passed_by else IDLE)
            for names in modules_of(model, SelfAttention)
            if names[0] not in self.ran
        )


class _Watch(TorchFunctionMode):
    """Notes convolutions that use the weight of a layer while no layer computes."""

    def __init__(self, runs: Runs, weights: dict[int, str]) -> None:
        super().__init__()
        self._runs, self._weights, self.inside = runs, weights, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function."""
        if func in _CONVOLUTIONS and not self.inside:
            weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
            if id(weight) in self._weights:
                self._runs.passed_by.add(self._weights[id(weight)])
        return func(*args, **(kwargs or {}))


@contextmanager
def watching_runs(model: nn.Module) -> Iterator[Runs]:
    """Notes which attention layers run within the context, in eager mode."""
    layers = {names[0]: layer for names, layer in modules_of(model, SelfAttention).items()}
    weights = {id(layer._parameters["weight"]): name for name, layer in layers.items() if "weight" in layer._parameters}
    runs = Runs()
    watch = _Watch(runs, weights)

    def begin(name: str, module: nn.Module, _: Any) -> None:
        if isinstance(module, SelfAttention):  # a convolution that is left has the very hooks of its layer
            runs.ran.add(name)
            watch.inside += 1

    def end(module: nn.Module, *_: Any) -> None:
        watch.inside -= isinstance(module, SelfAttention)

    with ExitStack() as stack:
        for name, layer in layers.items():
            stack.callback(layer.register_forward_pre_hook(partial(begin, name)).remove)
            stack.callback(layer.register_forward_hook(end).remove)
        stack.enter_context(watch)
        yield runs
