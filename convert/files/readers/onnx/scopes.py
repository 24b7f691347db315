"""What names stand for: in a graph, tensors; in a model, the functions that nodes call.

A graph within a node sees the names around it, a function does not.
"""

from __future__ import annotations

from typing import NamedTuple

from ....errors import CheckpointError
from ..common.limits import text_size
from ..common.stored import OddTensor, Source, StoredTensor
from .nodes import Node
from .protobuf import Message

_ENTRY = 200  # bytes that a name takes here
_KEY = 80  # bytes that a text takes besides its letters
_NAME, _DOMAIN, _OVERLOAD = 1, 10, 13  # of a function
_DESCRIPTION = 400  # bytes that the description of a function takes
_TAKEN = ("ai.onnx.", "com.microsoft.", "com.ms.internal.")  # domains of ONNX and of ONNX Runtime


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

    def doubt(self, name: str, value: Unknown) -> None:
        """Takes from a name the meaning that the graph gave it."""
        self._values[name] = value

    def key(self, name: str) -> str:
        """A name as that of no other graph: with the graphs around it in front."""
        if not self.prefix:
            return name
        key = self.prefix + name
        self._source.budget.spend(memory=_KEY + text_size(key))
        return key

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


class Functions:
    """The functions of a model.

    Args:
        source: The file.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[tuple[str, ...], Message] = {}

    def add(self, message: Message) -> None:
        """Adds a function that nodes of the model may call.

        Raises:
            CheckpointError: There is one of its name, or its domain is one whose operators need no function: ONNX
                Runtime runs its own, and others the function.
        """
        texts = {_DOMAIN: "", _NAME: "", _OVERLOAD: ""}
        for part in message.fields():
            if part.number in texts:
                texts[part.number] = message.text(part)
        domain, name = texts[_DOMAIN], texts[_NAME]
        if not domain or f"{domain}.".startswith(_TAKEN):
            raise CheckpointError(
                f"{self._source.path} has a function {name[:100]!r} in the domain {domain[:100]!r}, "
                "whose operators those who run it have themselves"
            )
        key = tuple(texts.values())
        if key in self._found:
            raise CheckpointError(f"{self._source.path} has two functions called {name[:100]!r}")
        self._source.budget.spend(memory=_DESCRIPTION)
        self._found[key] = message

    def called_by(self, node: Node) -> Message | None:
        """The function that a node calls, if the model has it."""
        return self._found.get((node.domain, node.operator, node.overload))
