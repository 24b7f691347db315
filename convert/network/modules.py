"""The modules of a network by their names, and one module in another's place.

Libraries' own ``save_pretrained`` is kept from writing a converted network: transformers' ``from_pretrained`` builds
the CNN and loads what it knows of the weights, so positions that were trained would be lost without an error.
``save_converted`` and ``HubNetwork`` keep them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from torch import nn
from torch.nn.modules.module import _WrappedHook

from ..errors import ConversionError
from ..subclasses.readers import HOOKS
from .held import replace_held

_NAME = "save_pretrained"
M = TypeVar("M", bound=nn.Module)


def names_by_module(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> list[tuple[str, ...]]:
    """Fully qualified names of the wanted modules, in the model's order, those of a shared one together."""
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if wanted(module):
            names.setdefault(id(module), []).append(name)
    return [tuple(group) for group in names.values()]


def modules_of(model: nn.Module, kind: type[M]) -> dict[tuple[str, ...], M]:
    """The modules of a class, each by all its names, in the model's order."""
    groups = names_by_module(model, lambda module: isinstance(module, kind))
    return {names: cast(M, model.get_submodule(names[0])) for names in groups}


def replace(model: nn.Module, names: Sequence[str], old: nn.Module, new: nn.Module) -> nn.Module:
    """Puts a module in another's place under all its names; returns the model, which is new if it was the root.

    It gets the very hook tables of the other, so that the handles of those hooks still remove them.
    """
    for attribute in HOOKS:
        setattr(new, attribute, getattr(old, attribute))
    for hook in new._load_state_dict_pre_hooks.values():
        if isinstance(hook, _WrappedHook) and hook.with_module:
            hook.module = weakref.ref(new)
    for name in names:
        if name == "":
            return new
        parent, _, child = name.rpartition(".")
        model.get_submodule(parent)._modules[child] = new  # past a class's own __setattr__
    return model


class Change(NamedTuple):
    """A module in another's place."""

    names: tuple[str, ...]
    old: nn.Module
    new: nn.Module


def changed(model: nn.Module, changes: Sequence[Change]) -> nn.Module:
    """Puts modules in others' places, under all their names and wherever else the model holds them.

    Returns:
        The model, which is new if it was itself replaced.
    """
    for names, old, new in changes:
        model = replace(model, names, old, new)
    replace_held(model, [(old, new) for _, old, new in changes])
    return model


def undone(model: nn.Module, changes: Sequence[Change]) -> nn.Module:
    """Undoes ``changed``."""
    return changed(model, [Change(names, new, old) for names, old, new in changes])


def by_name(changes: Sequence[Change]) -> dict[str, nn.Module]:
    """The new modules, by each of their names."""
    return {name: new for names, _, new in changes for name in names}


def refuse_to_save(*_: Any, **__: Any) -> NoReturn:
    """Stands in for ``save_pretrained`` on a converted network, and raises a ConversionError."""
    raise ConversionError(
        "save_pretrained would write weights that from_pretrained loads into convolutions, without attention: "
        "save_converted or HubNetwork keeps a converted network, restore_model or ungraft gives the CNN back"
    )


def guard(model: nn.Module) -> None:
    """Refuses ``save_pretrained`` of a converted network and its parts, where their classes have it."""
    for module in model.modules():
        if callable(getattr(type(module), _NAME, None)):
            vars(module)[_NAME] = refuse_to_save


def unguard(model: nn.Module) -> None:
    """Undoes ``guard``, for a network of convolutions again."""
    for module in model.modules():
        if vars(module).get(_NAME) is refuse_to_save:
            del vars(module)[_NAME]
