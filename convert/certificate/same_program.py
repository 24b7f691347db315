"""Whether two networks are the same program: the same calls of torch's operations, on the same tensors.

A converted network in the exact regime calls the CNN's own operations on the CNN's own tensors. Then the difference is
0, wherever an operation gives the same bits for the same numbers. This is why it is as fast; ``literal.py`` shows that
it is attention.

Both networks run once, and every call of torch is noted, with its arguments: tensors by where they come from, which is
an earlier call, the input, or the network under a name. A network that asks a tensor for a number could go another way
with another image, and is no program in this sense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves

from ..tensors import have_same_bytes

_READS_NUMBERS = {
    *(Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__),
    *(Tensor.__contains__, Tensor.equal, Tensor.allclose, torch.equal, torch.allclose),
}
_TELLS_LISTS = {Tensor.__getitem__, Tensor.__setitem__}  # a list of indices from one index an axis; no other call does
_INPUT = "the input"


class _ReadsNumbersError(Exception):
    """A network asks a tensor for a number."""


class _Noted(TorchFunctionMode):
    """Notes calls that give tensors.

    Attributes:
        lines: For each call its function and its arguments, tensors by where they come from.
        read: The network's own tensors that calls read, by name.
    """

    def __init__(self, network: nn.Module, image: Tensor) -> None:
        super().__init__()
        self.lines: list[Any] = []
        self.read: dict[str, Tensor] = {}
        state = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        self._names = {id(tensor): name for name, tensor in state.items()}
        self._origins: dict[int, Any] = {id(image): _INPUT}
        self._alive: list[Tensor] = []  # an identity is that of a tensor as long as this lives

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _READS_NUMBERS:
            raise _ReadsNumbersError
        results = func(*args, **kwargs or {})
        made = [each for each in tree_leaves(results) if isinstance(each, Tensor)]
        if made and getattr(func, "__name__", "") != "__get__":  # of a tensor's attribute
            given = (args, dict(kwargs or {}))
            leaves, shape = tree_flatten(given if func in _TELLS_LISTS else _as_tuples(given))
            self.lines.append((func, list(map(self._origin, leaves)), shape))
            self._origins |= {id(each): (len(self.lines), place) for place, each in enumerate(made)}
            self._alive += made
        return results

    def _origin(self, value: object) -> object:
        """A tensor's origin; anything else is what it is."""
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self._origins:
            name = self._names.get(id(value), f"tensor {len(self.read)}")  # or one that the network's code holds
            self.read[name], self._origins[id(value)] = value, name
        return self._origins[id(value)]


def _as_tuples(value: Any) -> Any:
    """Arguments of a call with tuples for lists, which most calls take alike."""
    if type(value) in (list, tuple):
        return tuple(map(_as_tuples, value))
    return {name: _as_tuples(each) for name, each in value.items()} if type(value) is dict else value


def is_same_program(cnn: nn.Module, model: nn.Module, image: Tensor) -> bool:
    """Whether two networks are one program for images of a size; False where one of them does not run.

    Args:
        cnn: One network, in eval mode.
        model: The other; its parameters are taken to be the same where they have the same name and numbers.
        image: An input of both.
    """
    noted = []
    for network in (cnn, model):
        calls = _Noted(network, image)
        try:
            with torch.no_grad(), calls:
                network(image)
        except Exception:  # whatever the network's code raises
            return False
        noted.append(calls)
    one, other = noted
    return (
        one.lines == other.lines
        and one.read.keys() == other.read.keys()
        and all(have_same_bytes(one.read[name], other.read[name]) for name in one.read)
    )
