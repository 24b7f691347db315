"""Which tensors the names in a graph stand for: a graph within a node sees the names around it, a function does not."""

from __future__ import annotations

from typing import NamedTuple

from ....errors import CheckpointError
from ..common.stored import OddTensor, Source, StoredTensor

_ENTRY = 200  # bytes that a name takes here


class Known(NamedTuple):
    """A tensor whose numbers are in the file.

    Attributes:
        key: Its name among the file's tensors.
        tensor: The tensor.
        origin: The name of the tensor that its numbers were taken from.
        note: What the user should know of how they were, or None.
        steps: How many nodes they came through.
    """

    key: str
    tensor: StoredTensor | OddTensor
    origin: str
    note: str | None = None
    steps: int = 0


class Unknown(NamedTuple):
    """A tensor whose numbers are not in the file, or not surely.

    Attributes:
        reason: Why, as the end of the sentence "the tensor is ...".
        integers: The number of the node over integers whose result it is, up to a scale; None if it is none.
        factor: The one factor of it that is in the file, if there is one.
    """

    reason: str
    integers: int | None = None
    factor: Known | None = None


_AMBIGUOUS = Unknown("of a name that a graph around has, too")


class Scope:
    """The names of one graph.

    Args:
        source: The file.
        prefix: What the names get in front, so that they are those of no other graph.
        outer: The graph whose names are seen here, too.
    """

    def __init__(self, source: Source, prefix: str = "", outer: Scope | None = None) -> None:
        self._source, self.prefix, self._outer = source, prefix, outer
        self._values: dict[str, Known | Unknown] = {}

    def define(self, name: str, value: Known | Unknown) -> None:
        """Gives a name its meaning; "" is an output that nobody wants.

        The standard forbids a name that a graph around has, and its implementations disagree on what it stands for.

        Raises:
            CheckpointError: It has one.
        """
        if not name:
            return
        if name in self._values:
            raise CheckpointError(f"{self._source.path} has two tensors called {name[:100]!r}")
        self._source.budget.spend(memory=_ENTRY)
        hides = self._outer is not None and self._outer.find(name) is not None
        self._values[name] = _AMBIGUOUS if hides else value

    def holds(self, name: str) -> bool:
        """Whether the graph itself has given a name its meaning."""
        return name in self._values

    def find(self, name: str) -> Known | Unknown | None:
        """What a name stands for, here or in the graphs around; None for one that has no meaning yet."""
        place: Scope | None = self
        while place is not None:
            if name in place._values:
                return place._values[name]
            place = place._outer
        return None
