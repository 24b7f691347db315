"""The names that a model's modules have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from torch import nn

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
