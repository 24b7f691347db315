"""Where version 1 had the classes of its layers, so that whole layers that it pickled are read.

A pickle names a class by its module. These modules are gone from the tree: each is made here, with the names that
pickles look for in it. Layers that learned where to look were of classes of their own.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ..subclasses import libraries, reader
from . import layer, read

_SAME = {"layer": layer, "read": read, "reader": reader, "libraries": libraries}
_RENAMED: dict[str, dict[str, Any]] = {
    "learned": {"LearnedAttention": layer.SelfAttention}
    | {f"LearnedAttention{axes}d": kind for axes, kind in layer.LAYERS.items()},
    "read": {f"LearnedOfSubclass{axes}d": kind for axes, kind in read.OF_SUBCLASS.items()},
}


def add_old_modules() -> None:
    """Makes the modules of version 1 that pickled layers name importable."""
    room = f"{__name__.removesuffix('.layer.version1')}.attention"
    names = {name: vars(module) for name, module in _SAME.items()}
    for name in ("", *{**_SAME, **_RENAMED}):
        module = ModuleType(f"{room}.{name}".rstrip("."))
        vars(module).update({**names.get(name, {}), **_RENAMED.get(name, {}), "__name__": module.__name__})
        sys.modules.setdefault(module.__name__, module)
