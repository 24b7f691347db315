"""Puts one module in another's place."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.module import _WrappedHook

from ..attention.read import HOOKS


def replace(model: nn.Module, names: Sequence[str], old: nn.Module, new: nn.Module) -> nn.Module:
    """Puts a module in another's place under all its names; returns the model, which is new if it was the root."""
    _move_hooks(old, new)
    for name in names:
        if name == "":
            return new
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, new)
    return model


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Gives a module the very hook tables of another, so that the handles of those hooks still remove them."""
    for attribute in HOOKS:
        setattr(new, attribute, getattr(old, attribute))
    for hook in new._load_state_dict_pre_hooks.values():
        if isinstance(hook, _WrappedHook) and hook.with_module:
            hook.module = weakref.ref(new)
