"""Stand-ins for unknown classes and functions in a pickle: they keep their arguments and do nothing."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class Inert:
    """An object of a class, or the result of a function, that a pickle names.

    Attributes:
        kind: The name, with its module's.
        args: Arguments of its construction.
        state: State that it would get afterwards, or None.
    """

    kind = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **_: Any) -> Any:
        """Keeps the arguments."""
        made = object.__new__(cls)
        made.args = args
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _InertDict(Inert):
    """A class of dictionaries: PyTorch puts entries into dictionaries of Python's own only."""

    def __new__(cls, *args: Any, **_: Any) -> Any:
        """A plain dictionary."""
        return OrderedDict(*args) if args and isinstance(args[0], dict) else OrderedDict()


class _InertList(Inert):
    """A class of lists, or of anything else that items are appended to."""

    def __new__(cls, *args: Any, **_: Any) -> Any:
        """A plain list."""
        return []


def stand_in(name: str, filled_as: type | None = None) -> type:
    """A class that stands for a name.

    Args:
        name: The name, with its module's.
        filled_as: dict or list where the pickle puts entries or items into its objects.
    """
    bases: dict[type | None, type[Inert]] = {dict: _InertDict, list: _InertList}
    return type(name, (bases.get(filled_as, Inert),), {"kind": name, "__module__": "inert"})
