"""Networks as files describe them: convolutions with their geometry, and modules that were pickled.

The modules of a pickled network may be of classes that are not known; they give their tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import CheckpointError
from .torch import Inert

_PARTS = ("_parameters", "_buffers", "_modules")
_MAX_DEPTH = 64  # modules in modules


def is_module(value: object) -> bool:
    """Whether a value is a module or stands for one."""
    return _state(value) is not None


def pickled_network(root: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The state dict of a network, and the names of classes in it that are not known; without any, it is torch.nn's."""
    tensors: dict[str, Any] = {}
    unknown: dict[str, None] = {}
    for name, module in _walk(root):
        prefix, state = f"{name}." if name else "", _state(module) or {}
        unknown |= dict.fromkeys([module.kind] if isinstance(module, Inert) else _inert_kinds(vars(module)))
        hidden = state.get("_non_persistent_buffers_set") or ()
        own = _positions(state) | dict(state.get("_parameters", ())) | dict(state.get("_buffers", ()))
        tensors |= {f"{prefix}{key}": value for key, value in own.items() if value is not None and key not in hidden}
    return tensors, tuple(unknown)


def kinds_of(root: Any) -> list[str]:
    """Qualified names of a pickled network's classes, and of what else in it is not known, each once."""
    modules = [module for _, module in _walk(root)]
    named = [module.kind if isinstance(module, Inert) else _qualified(type(module)) for module in modules]
    inner = [kind for module in modules if isinstance(module, nn.Module) for kind in _inert_kinds(vars(module))]
    return list(dict.fromkeys([*named, *inner]))


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Modules in the order of ``named_modules``, each under all of its names."""
    pending: list[tuple[str, int, Any]] = [("", 0, root)]
    while pending:
        name, depth, module = pending.pop()
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"the pickled network nests modules more than {_MAX_DEPTH} deep")
        yield name, module
        children = dict((_state(module) or {}).get("_modules", ()))
        pending += [
            (f"{name}.{key}" if name else str(key), depth + 1, child)
            for key, child in reversed(children.items())
            if isinstance(child, nn.Module | Inert)
        ]


def _state(module: Any) -> Mapping[str, Any] | None:
    """The attributes of a module, or None if the value is no module."""
    if isinstance(module, nn.Module):
        return vars(module)
    arguments = [module.state, *module.args] if isinstance(module, Inert) else []
    return next((state for state in arguments if isinstance(state, dict) and set(_PARTS) <= state.keys()), None)


def _positions(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Positions of an attention layer at rest, which holds them as numbers, under the keys of its state dict."""
    numbers: Any = getattr(state.get("_regime"), "state", None)
    is_regime = isinstance(numbers, dict) and {"alpha", "centers", "dtype"} <= numbers.keys()
    if not is_regime or "log_alpha" in dict(state.get("_parameters", ())):
        return {}
    return {name: torch.tensor(numbers[name], dtype=numbers["dtype"]) for name in ("alpha", "centers")}


def _inert_kinds(state: Mapping[str, Any]) -> Iterator[str]:
    """Names of the unknown classes among the attributes of a module, and in its dictionaries and lists."""
    containers = [each for each in state.values() if isinstance(each, dict | list | tuple)]
    inner = [each.values() if isinstance(each, dict) else each for each in containers]
    own = itertools.chain(state.values(), *inner)
    return (value.kind for value in own if isinstance(value, Inert) and not is_module(value))
