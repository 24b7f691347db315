"""Where version 1 had the classes of its layers, so that whole layers that it pickled are read.

A pickle names a class by its module. These modules are gone from the tree: each is made here, with the classes that
pickles look for in it.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ..subclasses import reader
from . import layer, learned, read

_MODULES = {"layer": layer, "learned": learned, "read": read, "reader": reader}


def add_old_modules() -> None:
    """Makes the modules of version 1 that pickled layers name importable."""
    room = f"{__name__.removesuffix('.layer.version1')}.attention"
    sys.modules.setdefault(room, ModuleType(room))
    for name, module in _MODULES.items():
        sys.modules.setdefault(f"{room}.{name}", module)
