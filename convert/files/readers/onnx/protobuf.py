"""The wire format of protocol buffers: a message is a row of numbered fields, and nothing is built to walk it.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ....errors import CheckpointError
from ..common.limits import MAX_NAME
from ..common.stored import Source

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field is written
_FIELD_STEPS = 2
_FIELD = 320  # bytes that a field takes which is kept, with the message in it
_INTEGER, _TEXT = 48, 80  # bytes that an integer in a list and an empty text take


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Its number, which says what it is.
        value: A varint's value; None for others.
        start: Where its bytes begin in the file.
        end: Where they end.
        kind: How it is written.
    """

    number: int
    value: int | None
    start: int
    end: int
    kind: int


class Message:
    """A message in a file.

    Args:
        source: The file.
        start: Where the message begins.
        end: Where it ends.
    """

    __slots__ = ("end", "source", "start")

    def __init__(self, source: Source, start: int, end: int) -> None:
        self.source, self.start, self.end = source, start, end

    def fields(self) -> Iterator[Field]:
        """The fields, in the order of the file.

        Raises:
            CheckpointError: The message is damaged, or the file has too many fields.
        """
        position, budget = self.start, self.source.budget
        while position < self.end:
            budget.spend(steps=_FIELD_STEPS)
            key, position = self._varint(position)
            if key < 1 << 3:  # no field has the number 0
                raise self.damaged()
            field, position = self._field(key >> 3, key & 7, position)
            yield field

    @contextmanager
    def grouped(self) -> Iterator[dict[int, list[Field]]]:
        """The fields by their numbers; what that takes is charged as long as it is in use.

        Raises:
            CheckpointError: As ``fields``.
        """
        found: dict[int, list[Field]] = {}
        charged = 0
        for field in self.fields():
            self.source.budget.spend(memory=_FIELD)
            charged += _FIELD
            found.setdefault(field.number, []).append(field)
        yield found
        self.source.budget.memory += charged

    def message(self, field: Field) -> Message:
        """The message that a field holds."""
        return Message(self.source, field.start, field.end)

    def text(self, field: Field) -> str:
        """The text that a field holds.

        Raises:
            CheckpointError: It is too long.
        """
        length = field.end - field.start
        if length > MAX_NAME:
            raise CheckpointError(f"{self.source.path} holds a name of more than {MAX_NAME} bytes")
        content = self.source.bytes(field.start, length)
        self.source.budget.spend(memory=_TEXT + (1 if content.isascii() else 4) * length)  # one wide letter widens all
        return content.decode("utf-8", "replace")

    def integers(self, field: Field) -> list[int]:
        """The signed integers of a repeated field: one, or several packed into its bytes.

        Raises:
            CheckpointError: The message is damaged, or the file has too many.
        """
        if field.value is not None:
            self.source.budget.spend(memory=_INTEGER)
            return [signed(field.value)]
        found, position = [], field.start
        while position < field.end:
            self.source.budget.spend(memory=_INTEGER, steps=1)
            value, position = self._varint(position)
            found.append(signed(value))
        if position != field.end:
            raise self.damaged()
        return found

    def _field(self, number: int, kind: int, position: int) -> tuple[Field, int]:
        if kind == VARINT:
            value, position = self._varint(position)
            return Field(number, value, position, position, kind), position
        if kind == BYTES:
            length, position = self._varint(position)
        elif kind in (FIXED32, FIXED64):
            length = struct.calcsize("<i" if kind == FIXED32 else "<q")
        else:
            raise self.damaged()
        if length > self.end - position:
            raise self.damaged()
        return Field(number, None, position, position + length, kind), position + length

    def _varint(self, position: int) -> tuple[int, int]:
        """An integer of seven bits a byte, the lowest first, and where it ends."""
        value = 0
        for shift in range(0, 70, 7):
            if position >= self.end:
                raise self.damaged()
            byte = self.source.content[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << 64:
                return value, position
        raise self.damaged()

    def damaged(self) -> CheckpointError:
        """The error for what is no message."""
        return CheckpointError(f"{self.source.path} is damaged or incomplete: it is no protocol buffer")


def signed(value: int) -> int:
    """A 64-bit two's complement."""
    return value - 2**64 if value >= 2**63 else value
