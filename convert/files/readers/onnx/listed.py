"""Numbers that a message lists: a repeated field, packed, number by number, or in any mix of the two.

Floating-point numbers that lie in one piece are the file's bytes, and are mapped. All others are counted first, without
keeping anything, and decoded when they are wanted, a piece at a time, into memory of exactly their size: a varint ends
with the first byte below 128, so a run of bytes has as many numbers as such bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import CheckpointError
from ..common.made import MadeStorage
from ..common.stored import Storage
from .protobuf import BYTES, FIXED32, FIXED64, VARINT, Field, Message

_PIECE = 2**18  # bytes, or numbers, that are decoded at a time
_LONGEST = 10  # bytes of a varint
_SIZES = {FIXED32: 4, FIXED64: 8}
_BITS: dict[int, type[np.unsignedinteger[Any]]] = {FIXED32: np.uint32, FIXED64: np.uint64, VARINT: np.uint64}

Array = np.ndarray[Any, Any]


class Listed:
    """The numbers of one repeated field of a message.

    Args:
        message: The message.
        number: The field's number.
        kind: How one number of it is written: VARINT, FIXED32 or FIXED64.

    Attributes:
        count: How many numbers were added.
    """

    def __init__(self, message: Message, number: int, kind: int) -> None:
        self._message, self._number, self._kind = message, number, kind
        self._first: Field | None = None
        self.count = 0

    def add(self, field: Field) -> None:
        """Counts the numbers of another of the message's fields of this number.

        Raises:
            CheckpointError: They are not written as such numbers are.
        """
        if field.kind == BYTES:
            self.count += self._counted(field)
        elif field.kind == self._kind:
            self.count += 1
        else:
            raise self._message.damaged()
        self._first = self._first or field

    def fixed(self) -> Storage:
        """The bytes of numbers of fixed length: mapped if they lie in one piece."""
        source, nbytes = self._message.source, self.count * _SIZES[self._kind]
        if self._first is not None and self._first.end - self._first.start == nbytes:
            return source.run(self._first.start, nbytes)
        make = partial(self._decoded, _BITS[self._kind], self._arrays)
        return MadeStorage(source, nbytes, make=make, spare=0)

    def integers(self, field_dtype: type[np.integer[Any]], kept: type[np.integer[Any]], largest: int) -> Storage:
        """The bytes of integers that are written as varints.

        Args:
            field_dtype: What the field holds; varints with more bits are cut to these, as all readers do.
            kept: What is kept of each.
            largest: The largest number that is allowed; the smallest is that of ``kept``.

        Returns:
            A storage. Reading it raises a CheckpointError if a number is out of range.
        """
        source, nbytes = self._message.source, self.count * np.dtype(kept).itemsize

        def arrays() -> Iterator[Array]:
            return (self._in_range(bits, kept, field_dtype, largest) for bits in self._arrays())

        return MadeStorage(source, nbytes, make=partial(self._decoded, kept, arrays), spare=0)

    def _counted(self, field: Field) -> int:
        """How many numbers a packed field holds."""
        length = field.end - field.start
        if self._kind != VARINT:
            if length % _SIZES[self._kind]:
                raise self._message.damaged()
            return length // _SIZES[self._kind]
        if length and self._message.source.content[field.end - 1] >= 128:
            raise self._message.damaged()
        return sum(int(np.count_nonzero(np.frombuffer(part, np.uint8) < 128)) for part in self._parts(field))

    def _parts(self, field: Field) -> Iterator[bytes]:
        """The bytes of a packed field, a piece at a time."""
        for start in range(field.start, field.end, _PIECE):
            yield self._message.source.bytes(start, min(_PIECE, field.end - start))

    def _decoded(self, kept: type[np.integer[Any]], arrays: Callable[[], Iterator[Array]]) -> Tensor:
        """All of the numbers, out of arrays of some of them."""
        out, position = np.empty(self.count, kept), 0
        for numbers in arrays():
            out[position : position + len(numbers)] = numbers
            position += len(numbers)
        return torch.from_numpy(out)

    def _in_range(
        self, bits: Array, kept: type[np.integer[Any]], field_dtype: type[np.integer[Any]], largest: int
    ) -> Array:
        unsigned: Array = bits.astype(f"u{np.dtype(field_dtype).itemsize}")
        numbers: Array = unsigned.view(field_dtype)
        if len(numbers) and not (np.iinfo(kept).min <= int(numbers.min()) and int(numbers.max()) <= largest):
            raise CheckpointError(f"{self._message.source.path} lists a number that the tensor's type does not have")
        return numbers

    def _arrays(self) -> Iterator[Array]:
        """The numbers' bits, a piece at a time."""
        singles: list[int] = []
        for field in self._message.fields():
            if field.number != self._number:
                continue
            if field.kind == BYTES or len(singles) == _PIECE:
                yield np.array(singles, _BITS[self._kind])
                singles = []
            if field.kind == BYTES:
                yield from self._unpacked(field)
            else:
                singles.append(self._bits(field))
        yield np.array(singles, _BITS[self._kind])

    def _bits(self, field: Field) -> int:
        """The bits of a number that is a field of its own."""
        if field.value is not None:
            return field.value
        return int.from_bytes(self._message.source.bytes(field.start, field.end - field.start), "little")

    def _unpacked(self, field: Field) -> Iterator[Array]:
        """The bits of the numbers of a packed field, a piece at a time."""
        if self._kind != VARINT:
            yield from (np.frombuffer(part, _BITS[self._kind]) for part in self._parts(field))
            return
        rest = b""
        for part in self._parts(field):
            content = np.frombuffer(rest + part, np.uint8)
            ends = np.flatnonzero(content < 128)
            if len(ends):
                yield self._varints(content, ends)
                content = content[ends[-1] + 1 :]
            rest = content.tobytes()
            if len(rest) >= _LONGEST:
                raise self._message.damaged()

    def _varints(self, content: Array, ends: Array) -> Array:
        """The numbers of a run of varints.

        Args:
            content: Their bytes, and any behind them.
            ends: Where the last byte of each lies, of one at least.
        """
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts + 1
        if np.any(lengths > _LONGEST) or np.any(content[ends[lengths == _LONGEST]] > 1):  # more than 64 bits
            raise self._message.damaged()
        values = np.zeros(len(ends), np.uint64)
        for number in range(int(lengths.max())):
            longer = lengths > number
            bits = content[starts[longer] + number].astype(np.uint64)
            values[longer] |= (bits & np.uint64(127)) << np.uint64(7 * number)
        return values
