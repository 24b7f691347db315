"""Where version 1 had the classes of its layers, so that whole layers that it pickled are read.

A pickle names a class by its module. Modules that are gone from the tree are made here, with the names that pickles
look for in them. Layers that learned where to look were of classes of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..heads import content
from ..subclasses import libraries, padded, readers
from . import layer, of_subclass

_MODULES: dict[str, Mapping[str, Any]] = {
    "attention": {},
    "attention.layer": vars(layer),
    "attention.learned": {"LearnedAttention": layer.SelfAttention}
    | {f"LearnedAttention{axes}d": kind for axes, kind in layer.LAYERS.items()},
    "attention.read": vars(of_subclass)
    | {f"LearnedOfSubclass{axes}d": kind for axes, kind in of_subclass.OF_SUBCLASS.items()},
    "attention.reader": vars(readers),
    "attention.libraries": vars(libraries),
    "heads.axis_scores": {"AxisScores": content.AxisScores},
    "padded": vars(padded),
}


def add_old_modules() -> None:
    """Makes the modules of version 1 that pickled layers name importable."""
    package = __name__.removesuffix(".layer.version1")
    for name, names in _MODULES.items():
        module = ModuleType(f"{package}.{name}")
        vars(module).update({key: value for key, value in names.items() if not key.startswith("__")})
        sys.modules.setdefault(module.__name__, module)
