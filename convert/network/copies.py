"""Copies of networks, which are held against their originals.

A class may copy itself in its own way and forget something: torchvision's feature extractors give up their graph for
eval mode and come back in training mode, graphs of ``torch.fx`` lose hooks and attributes. Such a copy is made again,
attribute by attribute, as Python copies an object without a way of its own; if it differs still, it is refused.

``deepcopy`` copies no function and no weak reference: those that hold a module of the original get the copy's.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from typing import Any

from torch import fx, nn

from ..errors import ConversionError, first_line
from ..subclasses.computed import detached
from .held import replace_held
from .unchanged import difference


def copied(model: nn.Module, *, keep_tensors: bool = False) -> nn.Module:
    """A copy of a model, with copied or shared tensors.

    Raises:
        ConversionError: It cannot be copied, or the copy is not the same network.
    """
    kept: dict[int, Any] = {}
    if keep_tensors:
        kept = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
    try:
        with warnings.catch_warnings(action="ignore"):  # of what programs of torch.export hold
            made = copy.deepcopy(model, detached(model) | kept)
    except Exception as error:  # modules may hold anything
        raise ConversionError(f"the model cannot be copied, {_INSTEAD}: {first_line(error)}") from error
    reason = difference(model, made)
    if reason is not None:
        made = _plain_copy(model, detached(model) | kept, reason)
    pairs = list(zip(model.modules(), made.modules(), strict=True))
    replace_held(made, pairs, rebuilt=True)
    return made


_INSTEAD = "inplace=True changes it as it is"


def _plain_copy(model: nn.Module, memo: dict[int, Any], reason: str) -> nn.Module:
    """A copy without the ways in which classes copy themselves, which made a copy that differs."""
    own = list(model.modules())
    try:
        for module in own:  # before any attribute is copied that may hold another of them
            memo[id(module)] = _empty(module)
        with warnings.catch_warnings(action="ignore"):  # as above
            for module in own:
                vars(memo[id(module)]).update(copy.deepcopy(vars(module), memo))
        for module in own:
            if isinstance(module, fx.GraphModule):
                memo[id(module)].graph = memo[id(module)].graph  # compiles it
    except Exception as error:  # modules may hold anything
        raise ConversionError(f"the model's copy would not be the same, {_INSTEAD}: {reason}") from error
    made: nn.Module = memo[id(model)]
    still = difference(model, made)
    if still is not None:
        raise ConversionError(f"the model's copy would not be the same, {_INSTEAD}: {still}")
    return made


def _empty(module: nn.Module) -> nn.Module:
    kind = type(module)
    if not isinstance(module, fx.GraphModule):
        return object.__new__(kind)
    made = kind.__new__(kind)  # a class of its own, on which its graph's code is put
    type(made).__name__ = kind.__name__
    return made
