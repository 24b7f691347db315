"""Modules in others' places, wherever the modules of a network hold them.

``forward`` may reach a layer through what no submodule is: a list, a set, a dataclass, an object of its own, a
``functools.partial``, a bound method, a weak reference, the closure or default of a function. These are looked through
here. A call by a global name, or of a function that takes the layer's weight alone, is not seen; a run shows it
(``unchanged.py``).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType, NoneType
from typing import Any

import torch
from torch import Tensor, nn

_DEPTH = 16  # of values in values; deeper ones are left as they are
_TENSORS = frozenset(("_parameters", "_buffers", "_non_persistent_buffers_set"))
_ATOMS = (str, bytes, int, float, complex, NoneType, Tensor, torch.dtype, torch.device, type, ModuleType)
_LEFT = (*_ATOMS, BuiltinFunctionType)


def replace_held(model: nn.Module, pairs: Sequence[tuple[nn.Module, nn.Module]], *, rebuilt: bool = False) -> None:
    """Puts modules in others' places in all that the modules of a model hold, but under their names.

    Args:
        model: The model.
        pairs: Each module that was replaced, with the one in its place.
        rebuilt: Make new containers in place of those that would change, which another network holds as well.
    """
    own = list(model.modules())
    walk = _Walk({id(one): other for one, other in pairs}, frozenset(map(id, own)), rebuilt=rebuilt)
    for module in own:
        walk.attributes_of(module)


class _Walk:
    """A walk through values; each is seen once, so that what shares a container shares the new one."""

    def __init__(self, new: Mapping[int, nn.Module], own: frozenset[int], *, rebuilt: bool) -> None:
        self._new, self._own, self._rebuilt = new, own, rebuilt
        self._seen: dict[int, tuple[Any, Any]] = {}  # by identity, with the value, which keeps it alive

    def attributes_of(self, module: nn.Module) -> None:
        """Replaces in the attributes of a module, which stays itself."""
        for name, value in list(vars(module).items()):
            if name not in _TENSORS and (made := self._of(value, 0)) is not value:
                vars(module)[name] = made

    def _of(self, value: Any, depth: int) -> Any:
        """The value with modules in others' places: itself where it holds none, or could be changed in place."""
        if isinstance(value, _LEFT) or depth > _DEPTH:
            return value
        if isinstance(value, nn.Module) and id(value) in self._new:
            return self._new[id(value)]
        if id(value) in self._own:  # which has its own turn
            return value
        if id(value) not in self._seen:
            self._seen[id(value)] = value, value  # while it is looked into
            self._seen[id(value)] = value, self._inside(value, depth + 1)
        return self._seen[id(value)][1]

    def _inside(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return self._mapping(value, depth)
        if isinstance(value, list | deque):
            return self._changed(value, {place: self._of(each, depth) for place, each in enumerate(value)}, value)
        if isinstance(value, tuple | set | frozenset):
            return self._collection(value, depth)
        if isinstance(value, functools.partial):
            return self._partial(value, depth)
        if isinstance(value, MethodType):
            return self._method(value, depth)
        if isinstance(value, FunctionType):
            return self._function(value, depth)
        if type(value) is weakref.ref:
            target = value()
            made = self._of(target, depth) if isinstance(target, nn.Module) else target
            return value if made is target else weakref.ref(made)
        return self._object(value, depth)

    def _changed(self, value: Any, items: Mapping[Any, Any], now: Any) -> Any:
        """The container with other items in their places, of which only those are set that differ."""
        differing = {place: each for place, each in items.items() if each is not now[place]}
        if not differing:
            return value
        target = copy.copy(value) if self._rebuilt else value
        for place, each in differing.items():
            target[place] = each
        return target

    def _mapping(self, value: dict[Any, Any], depth: int) -> Any:
        """A library's configuration may be a dictionary that refuses every change, so only what must change is set."""
        items = [(self._of(key, depth), self._of(each, depth)) for key, each in dict.items(value)]
        if all(one is other for (one, _), other in zip(items, dict.keys(value), strict=True)):
            return self._changed(value, dict(items), dict(dict.items(value)))
        target = copy.copy(value) if self._rebuilt else value
        target.clear()
        target.update(items)
        return target

    def _collection(self, value: Any, depth: int) -> Any:
        """A tuple or set, made again where an item differs; a set that can change is changed."""
        before = list(value)
        items = [self._of(each, depth) for each in before]
        if all(one is other for one, other in zip(items, before, strict=True)):
            return value
        if isinstance(value, set) and not self._rebuilt:
            value.clear()
            value.update(items)
            return value
        make: Callable[[Any], Any] = getattr(type(value), "_make", type(value))  # of a named tuple
        return make(items)

    def _partial(self, value: functools.partial[Any], depth: int) -> Any:
        parts = [self._of(each, depth) for each in (value.func, value.args, value.keywords)]
        if parts[0] is value.func and parts[1] is value.args and parts[2] is value.keywords:
            return value
        made = type(value)(parts[0], *parts[1], **parts[2])
        vars(made).update(vars(value))
        return made

    def _method(self, value: MethodType, depth: int) -> Any:
        """A bound method, of the other object: its own of that name, as a layer has another ``forward``."""
        made = self._of(value.__self__, depth)
        if made is value.__self__:
            return value
        if type(made) is type(value.__self__):
            return MethodType(value.__func__, made)
        own = getattr(made, value.__func__.__name__, None)
        return own if callable(own) else value

    def _function(self, value: FunctionType, depth: int) -> Any:
        """A function, made again where its closure, defaults or attributes hold a module that is replaced."""
        cells = tuple(self._cell(cell, depth) for cell in value.__closure__ or ())
        defaults, by_name = (self._of(each, depth) for each in (value.__defaults__, value.__kwdefaults__))
        own = dict(vars(value))
        attributes = {name: self._of(each, depth) for name, each in own.items()}
        same = all(one is other for one, other in zip(cells, value.__closure__ or (), strict=True))
        same = same and all(each is own[name] for name, each in attributes.items())
        if same and defaults is value.__defaults__ and by_name is value.__kwdefaults__:
            return value
        made = FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
        made.__kwdefaults__, made.__qualname__, made.__doc__ = by_name, value.__qualname__, value.__doc__
        made.__module__, made.__annotations__ = value.__module__, value.__annotations__
        vars(made).update(attributes)
        return made

    def _cell(self, cell: CellType, depth: int) -> CellType:
        try:
            value = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            return cell
        made = self._of(value, depth)
        return cell if made is value else CellType(made)

    def _object(self, value: Any, depth: int) -> Any:
        """Any other object, whose attributes are changed, past what its class says of changes."""
        kind = type(value)
        if kind.__module__.partition(".")[0] == "torch" and not isinstance(value, nn.Module):
            return value  # graphs, hooks' handles and the like, which name modules and do not hold them
        if isinstance(value, nn.Module):
            if not self._rebuilt:
                self.attributes_of(value)
            return value
        target = value
        for read, write in _attributes(value):
            each = read(value)
            if (made := self._of(each, depth)) is not each:
                target = copy.copy(value) if self._rebuilt and target is value else target
                write(target, made)
        return target


def _attributes(value: Any) -> list[tuple[Callable[[Any], Any], Callable[[Any, Any], None]]]:
    """How to read and write each attribute of an object, in its dictionary or in slots."""
    found: list[tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = []
    for kind in type(value).__mro__:
        if "__slots__" in vars(kind):
            for slot in vars(kind).values():
                if isinstance(slot, MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # of a slot without a value
                        slot.__get__(value)
                        found.append((slot.__get__, slot.__set__))
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return found
    if isinstance(own, dict):
        found += [(functools.partial(_read, name), functools.partial(_write, name)) for name in own]
    return found


def _read(name: str, value: Any) -> Any:
    return object.__getattribute__(value, "__dict__")[name]


def _write(name: str, value: Any, new: Any) -> None:
    object.__getattribute__(value, "__dict__")[name] = new
