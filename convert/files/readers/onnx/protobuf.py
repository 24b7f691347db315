"""The wire format of protocol buffers: a message is a row of numbered fields, and nothing is built to walk it.

A field that is written in another way than its type's is unknown to other readers, who pass over it: it is refused
here, where it is read. So are texts that are not UTF-8, and numbers that an enumeration does not have.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
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
        """The message that a field holds.

        Raises:
            CheckpointError: It is not written as a message is.
        """
        self._check_kind(field, BYTES)
        return Message(self.source, field.start, field.end)

    def text(self, field: Field, *, errors: str = "strict") -> str:
        """The text that a field holds.

        Args:
            field: The field.
            errors: What is done with bytes that are not UTF-8, as ``bytes.decode`` takes it.

        Raises:
            CheckpointError: It is too long, no text, or not written as a text is.
        """
        self._check_kind(field, BYTES)
        length = field.end - field.start
        if length > MAX_NAME:
            raise CheckpointError(f"{self.source.path} holds a name of more than {MAX_NAME} bytes")
        content = self.source.bytes(field.start, length)
        self.source.budget.spend(memory=_TEXT + (1 if content.isascii() else 4) * length)  # one wide letter widens all
        try:
            return content.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.source.path} holds a name that is not text in UTF-8") from error

    def last_text(self, number: int) -> str:
        """The text of a field, the last one if it is there several times, or "" if it is not there.

        Raises:
            CheckpointError: As ``text``.
        """
        found = ""
        for part in self.fields():
            if part.number == number:
                found = self.text(part)
        return found

    def integer(self, field: Field) -> int:
        """The signed integer that a field holds.

        Raises:
            CheckpointError: It is not written as an integer is.
        """
        self._check_kind(field, VARINT)
        return signed(field.value or 0)

    def enum(self, field: Field, known: Container[int]) -> int:
        """The number of an enumeration that a field holds; other readers pass over one that they do not know.

        Raises:
            CheckpointError: It is not one of those that are known, or not written as an integer is.
        """
        if (value := self.integer(field)) not in known:
            raise CheckpointError(f"{self.source.path} holds the number {value} where the standard knows no such one")
        return value

    def integers(self, field: Field) -> list[int]:
        """The signed integers of a repeated field: one, or several packed into its bytes.

        Raises:
            CheckpointError: The message is damaged, or the file has too many, or they are not written as integers are.
        """
        self._check_kind(field, VARINT, BYTES)
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

    def _check_kind(self, field: Field, *kinds: int) -> None:
        if field.kind not in kinds:
            raise self.damaged()

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
