"""Stand-ins for unknown classes and functions in a pickle: they keep their arguments and do nothing."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class Inert:
    """An object of a class, or the result of a function, that a pickle names.

    Attributes:
        kind: The name, with its module's.
        filled_as: dict or list where the pickle puts entries or items into its objects, which PyTorch does with those
            of Python's own only.
        args: Arguments of its construction.
        state: State that it would get afterwards, or None.
    """

    kind = ""
    filled_as: type | None = None
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **_: Any) -> Any:
        """Keeps the arguments; a plain dictionary or list where it is filled."""
        if cls.filled_as is list:
            return []
        if cls.filled_as is dict:
            return OrderedDict(*args) if args and isinstance(args[0], dict) else OrderedDict()
        made = object.__new__(cls)
        made.args = args
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


def stand_in(name: str, filled_as: type | None = None) -> type:
    """A class that stands for a name, as ``Inert`` says."""
    return type(name, (Inert,), {"kind": name, "filled_as": filled_as, "__module__": "inert"})
