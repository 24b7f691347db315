"""The wire format of protocol buffers: a message is a row of numbered fields, and nothing is built to walk it.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CheckpointError
from .common.limits import MAX_NAME
from .common.stored import Source

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIELD_STEPS = 2
_INTEGER, _TEXT = 40, 60  # bytes that an integer and an empty text take


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Its number, which says what it is.
        value: A varint's value; None for others.
        start: Where its bytes begin in the file.
        end: Where they end.
    """

    number: int
    value: int | None
    start: int
    end: int


class Message:
    """A message in a file.

    Args:
        source: The file.
        start: Where the message begins.
        end: Where it ends.
    """

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
                raise self._damaged()
            field, position = self._field(key >> 3, key & 7, position)
            yield field

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
        self.source.budget.spend(memory=_TEXT + length)
        return self.source.bytes(field.start, length).decode("utf-8", "replace")

    def integers(self, field: Field) -> list[int]:
        """The signed integers of a repeated field: one, or several packed into its bytes.

        Raises:
            CheckpointError: The message is damaged, or the file has too many.
        """
        if field.value is not None:
            self.source.budget.spend(memory=_INTEGER)
            return [_signed(field.value)]
        found, position = [], field.start
        while position < field.end:
            self.source.budget.spend(memory=_INTEGER, steps=1)
            value, position = self._varint(position)
            found.append(_signed(value))
        return found

    def _field(self, number: int, kind: int, position: int) -> tuple[Field, int]:
        if kind == _VARINT:
            value, position = self._varint(position)
            return Field(number, value, position, position), position
        if kind == _BYTES:
            length, position = self._varint(position)
        elif kind in (_FIXED32, _FIXED64):
            length = struct.calcsize("<i" if kind == _FIXED32 else "<q")
        else:
            raise self._damaged()
        if length > self.end - position:
            raise self._damaged()
        return Field(number, None, position, position + length), position + length

    def _varint(self, position: int) -> tuple[int, int]:
        """An integer of seven bits a byte, the lowest first, and where it ends."""
        value = 0
        for shift in range(0, 70, 7):
            if position >= self.end:
                raise self._damaged()
            byte = self.source.content[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise self._damaged()

    def _damaged(self) -> CheckpointError:
        return CheckpointError(f"{self.source.path} is damaged or incomplete: it is no protocol buffer")


def _signed(value: int) -> int:
    """A 64-bit two's complement."""
    return value - 2**64 if value >= 2**63 else value
