"""Training of networks that learn where their heads look, from scratch or from a trained convolution.

The names are loaded when they are first used: a module of this room that needs no torch imports none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .freezing import freeze
    from .melting import melt, parameter_groups

__all__ = ["freeze", "melt", "parameter_groups"]


def __getattr__(name: str) -> Any:
    """Loads a name from the module that defines it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".freezing" if name == "freeze" else ".melting", __name__), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
