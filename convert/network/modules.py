"""The modules of a network by their names, and one module in another's place.

Libraries' own ``save_pretrained`` is kept from writing a converted network: transformers' ``from_pretrained`` builds
the CNN and loads what it knows of the weights, so positions that were trained would be lost without an error.
``save_converted`` and ``HubNetwork`` keep them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from torch import nn
from torch.nn.modules.module import _WrappedHook

from ..errors import ConversionError
from ..subclasses.readers import HOOKS

_NAME = "save_pretrained"
_OWN = frozenset(vars(nn.Module()))  # tables of torch's own
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
        setattr(model.get_submodule(parent), child, new)
    return model


def replace_held(model: nn.Module, pairs: Sequence[tuple[nn.Module, nn.Module]]) -> None:
    """Puts modules in others' places where a module of the model holds these in plain lists, tuples or dictionaries.

    Args:
        model: The model.
        pairs: Each module that was replaced, with the one in its place.
    """
    new = {id(one): other for one, other in pairs}
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in _OWN and (found := _swapped(value, new)) is not value:
                vars(module)[name] = found


def _swapped(value: Any, new: Mapping[int, nn.Module]) -> Any:
    """The value with modules in others' places; lists and dictionaries are changed in place, and only where they must.

    A library's configuration may be a dictionary that refuses every change.
    """
    if isinstance(value, list | dict):
        for place, each in list(enumerate(value) if isinstance(value, list) else value.items()):
            if (made := _swapped(each, new)) is not each:
                value[place] = made
    elif type(value) is tuple:
        found = tuple(_swapped(each, new) for each in value)
        return found if any(one is not other for one, other in zip(found, value, strict=True)) else value
    return new.get(id(value), value) if isinstance(value, nn.Module) else value


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
