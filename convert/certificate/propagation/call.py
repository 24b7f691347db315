"""One call of a function or a method in a network that is followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .interval import Arithmetic, UnboundedError
from .tracked import Tracked


@dataclass(frozen=True)
class Call:
    """One call of a function or a method.

    Attributes:
        name: Its name.
        args: Its arguments: ``Tracked``, and what is no tensor.
        kwargs: Its keyword arguments.
        shape: The result's shape.
        arithmetic: How it rounds.
    """

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    shape: torch.Size
    arithmetic: Arithmetic
    _read: set[str] = field(default_factory=set)

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, by position or by name.

        Raises:
            UnboundedError: It is there by both, so what stands at the position is another one.
        """
        if len(self.args) <= position:
            return self.option(name, default)
        if name in self.kwargs:
            raise UnboundedError(f"no bound is known for {self.name} called like this")
        return self.args[position]

    def option(self, name: str, default: Any = None) -> Any:
        """An argument that is there by name alone."""
        self.ignore(name)
        return self.kwargs.get(name, default)

    def ignore(self, *names: str) -> None:
        """Notes keyword arguments that do not matter to the bound."""
        self._read.update(names)

    def check_all_read(self) -> None:
        """Makes sure that no keyword argument was overlooked.

        Raises:
            UnboundedError: One is neither known nor off.
        """
        given = [name for name, value in self.kwargs.items() if value is not None and value is not False]  # 0 is given
        odd = [name for name in given if name not in self._read]
        if odd:
            raise UnboundedError(f"no bound is known for {self.name} with {', '.join(odd)}")

    @property
    def first(self) -> Tracked:
        """The first argument, a tensor.

        Raises:
            UnboundedError: It is not one.
        """
        found = self.argument(0, "input")
        if not isinstance(found, Tracked):
            raise UnboundedError(f"no bound is known for {self.name} of this")
        return found

    def optional_values(self, position: int, name: str) -> Tensor | None:
        """The values of a parameter, a buffer or a constant, or None where there is none.

        Raises:
            UnboundedError: The argument is computed while the network runs.
        """
        return _real(self.argument(position, name), name)

    def named_values(self, name: str) -> Tensor | None:
        """As ``optional_values``, of an argument that is there by name alone."""
        return _real(self.option(name), name)

    def values(self, position: int, name: str) -> Tensor:
        """As ``optional_values``, of an argument that must be there.

        Raises:
            UnboundedError: Also where it is not.
        """
        found = self.optional_values(position, name)
        if found is None:
            raise UnboundedError(f"it has no {name}")
        return found


def _real(found: Any, name: str) -> Tensor | None:
    if found is None:
        return None
    if not isinstance(found, Tracked) or found.real is None:
        raise UnboundedError(f"its {name} is computed while it runs")
    return found.real
