"""Numbers of a repeated field are what was written, in its order, however they are packed and however long."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.stored import Source, Storage
from conv2attn.convert.files.readers.onnx import listed as module
from conv2attn.convert.files.readers.onnx.listed import Listed
from conv2attn.convert.files.readers.onnx.protobuf import FIXED32, FIXED64, VARINT, Message
from tests.hostile.bombs import field

NUMBER = 7
PIECE = 2**18
EDGES = sorted({0, 5, *(2**bits + step for bits in (*range(7, 64, 7), 64) for step in (-1, 0))} - {2**64})
FIXED: dict[str, tuple[int, Any]] = {
    "float": (FIXED32, np.float32),
    "fixed32": (FIXED32, np.uint32),
    "double": (FIXED64, np.float64),
    "fixed64": (FIXED64, np.uint64),
}


class Watched(Source):
    """A file that remembers how many bytes of it were copied at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.copied: list[int] = []

    def bytes(self, start: int, length: int) -> bytes:
        """As ``Source``."""
        self.copied.append(length)
        return super().bytes(start, length)


@pytest.fixture
def listing(tmp_path: Path) -> Callable[..., Listed]:
    """The numbers of the field 7 of a message of so many parts, with other fields and bytes around."""

    def add(kind: int, *parts: bytes) -> Listed:
        content = b"".join([field(6, b"\1\1"), *parts, field(8, b"\1\1")])
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(b"\1\1\1" + content + b"\1")
        message = Message(Watched(path), 3, 3 + len(content))
        found = Listed(message, NUMBER, kind)
        for part in message.fields():
            if part.number == NUMBER:
                found.add(part)
        return found

    return add


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def alone(number: int) -> bytes:
    return bytes([NUMBER << 3]) + varint(number)


def packed(*numbers: int) -> bytes:
    return field(NUMBER, b"".join(map(varint, numbers)))


def fixed_alone(number: Any) -> bytes:
    return bytes([NUMBER << 3 | {4: FIXED32, 8: FIXED64}[number.itemsize]]) + bytes(number.tobytes())


def integers(listed: Listed, field_dtype: Any = np.uint64, kept: Any = np.uint64, largest: int = 2**64 - 1) -> Storage:
    return listed.integers(field_dtype, kept, largest)


def read(storage: Storage, dtype: torch.dtype = torch.uint64) -> list[Any]:
    found: list[Any] = storage.numbers(dtype, 0, storage.nbytes // dtype.itemsize).tolist()
    return found


def watched(listed: Listed) -> Watched:
    source = integers(listed).source
    assert isinstance(source, Watched)
    return source


# Integers


def test_integers_of_every_length_are_what_was_written_packed_or_not_or_in_any_mix(
    listing: Callable[..., Listed],
) -> None:
    other = field(NUMBER - 1, b"\1")
    for parts in (
        [packed(*EDGES)],
        [packed(*EDGES[::-1])],
        [alone(number) for number in EDGES],
        [*map(alone, EDGES[:3]), packed(*EDGES[3:5]), packed(), *map(alone, EDGES[5:8]), packed(*EDGES[8:])],
        [packed(*EDGES[:4]), other, *map(alone, EDGES[4:6]), other, alone(EDGES[6]), other, packed(*EDGES[7:])],
    ):
        found = listing(VARINT, *parts)
        assert found.count == len(EDGES)
        assert integers(found).nbytes == 8 * len(EDGES)
        assert sorted(numbers := read(integers(found))) == EDGES
        assert numbers in (EDGES, EDGES[::-1])


@pytest.mark.parametrize("size", range(1, 13))
def test_integers_are_the_same_in_pieces_of_any_size(
    size: int, listing: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", size)
    numbers = [*EDGES, 1, 2, *EDGES[::-1], 2**64 - 1, 2**64 - 1, 300]
    for parts in ([packed(*numbers)], list(map(alone, numbers)), [*map(alone, numbers[:15]), packed(*numbers[15:])]):
        found = listing(VARINT, *parts)
        assert found.count == len(numbers)
        assert read(integers(found)) == numbers


def test_no_more_than_2_to_the_18_bytes_are_copied_at_a_time(listing: Callable[..., Listed]) -> None:
    found = listing(VARINT, field(NUMBER, b"\x81\0" * (PIECE + 5)))
    assert found.count == PIECE + 5
    assert watched(found).copied == [PIECE, PIECE, 10]
    assert read(integers(found)) == [1] * (PIECE + 5)
    assert watched(found).copied == [PIECE, PIECE, 10] * 2


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9])
def test_numbers_on_their_own_are_gathered_up_to_the_size_of_a_piece(
    count: int, listing: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", 4)
    found = listing(VARINT, *[alone(7)] * count)
    full, rest = divmod(max(count - 1, 0), 4)
    assert [len(numbers) for numbers in found._arrays()] == [4] * full + [rest + (count > 0)]


def test_integers_are_cut_to_the_bits_of_their_field(listing: Callable[..., Listed]) -> None:
    written = [2**64 - 1, 2**64 - 2**31, 2**31, 2**32 + 5, 2**31 - 1, 2**63]
    found = listing(VARINT, packed(*written))
    wanted = [-1, -(2**31), -(2**31), 5, 2**31 - 1, 0]
    assert read(integers(found, np.int32, np.int32, 2**31 - 1), torch.int32) == wanted
    longs = [-1, -(2**31), 2**31, 2**32 + 5, 2**31 - 1, -(2**63)]
    assert read(integers(found, np.int64, np.int64, 2**63 - 1), torch.int64) == longs


@pytest.mark.parametrize(
    ("field_dtype", "kept", "largest"),
    [
        (np.int32, np.int8, 2**7 - 1),
        (np.int32, np.uint8, 2**8 - 1),
        (np.int32, np.uint8, 1),
        (np.int32, np.int16, 2**15 - 1),
        (np.uint64, np.uint32, 2**32 - 1),
    ],
)
def test_an_integer_that_the_type_does_not_have_is_refused(
    field_dtype: Any, kept: Any, largest: int, listing: Callable[..., Listed]
) -> None:
    smallest, dtype = int(np.iinfo(kept).min), getattr(torch, np.dtype(kept).name)
    for numbers in ([smallest, 0, largest], [largest], [smallest]):
        found = integers(listing(VARINT, packed(*[number % 2**64 for number in numbers])), field_dtype, kept, largest)
        assert found.nbytes == len(numbers) * np.dtype(kept).itemsize
        assert read(found, dtype) == numbers
    for number in (smallest - 1, largest + 1):
        for numbers in ([number], [0, number, 0]):
            listed = listing(VARINT, packed(*[each % 2**64 for each in numbers]))
            found = integers(listed, field_dtype, kept, largest)
            message = f"{found.source.path} lists a number that the tensor's type does not have"
            with pytest.raises(CheckpointError, match=f"^{re.escape(message)}$"):
                read(found, dtype)


def test_an_integer_may_be_longer_than_it_need_be(listing: Callable[..., Listed]) -> None:
    for length in range(1, 10):
        longer = [bytes([first | 128]) + b"\x80" * (length - 1) + b"\0" for first in (0, 1, 127)]
        assert read(integers(listing(VARINT, field(NUMBER, b"".join(longer))))) == [0, 1, 127]


def damaged(source: Source) -> str:
    return f"^{re.escape(str(source.path))} is damaged or incomplete: it is no protocol buffer$"


LONG = {
    "eleven bytes": b"\x80" * 10 + b"\0",
    "twelve bytes": b"\x80" * 11 + b"\1",
    "sixteen bytes": b"\x80" * 15 + b"\1",
    "65 bits": b"\x80" * 9 + b"\2",
    "65 bits, all set": b"\xff" * 9 + b"\3",
    "70 bits": b"\xff" * 9 + b"\x7f",
}


@pytest.mark.parametrize("size", [1, 4, 10, 11, PIECE])
@pytest.mark.parametrize("name", LONG)
def test_a_packed_integer_of_more_than_64_bits_is_refused(
    name: str, size: int, listing: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", size)
    for before, behind in ((b"", b""), (b"\1", b"\1"), (b"\x80" * 9 + b"\1", b"\x80\1")):
        found = listing(VARINT, field(NUMBER, before + LONG[name] + behind))
        storage = integers(found)
        with pytest.raises(CheckpointError, match=damaged(storage.source)):
            read(storage)


@pytest.mark.parametrize("size", [10, 16])
def test_of_an_integer_without_end_no_more_than_a_piece_is_read(
    size: int, listing: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further piece would be joined to all before it."""
    monkeypatch.setattr(module, "_PIECE", size)
    found = listing(VARINT, field(NUMBER, b"\x80" * 100 + b"\1"))
    assert found.count == 1
    source = watched(found)
    source.copied.clear()
    with pytest.raises(CheckpointError, match=damaged(source)):
        read(integers(found))
    assert source.copied == [size]


@pytest.mark.parametrize("content", [b"\x80", b"\xff", b"\1\x80", b"\1\x80\x80"])
def test_packed_integers_whose_last_does_not_end_are_refused(content: bytes, listing: Callable[..., Listed]) -> None:
    with pytest.raises(CheckpointError, match="is damaged or incomplete: it is no protocol buffer"):
        listing(VARINT, field(NUMBER, content))


def test_an_empty_list_has_no_integers(listing: Callable[..., Listed]) -> None:
    for parts in ([], [packed()], [packed(), packed()]):
        found = listing(VARINT, *parts)
        assert (found.count, integers(found).nbytes) == (0, 0)
        assert [len(numbers) for numbers in found._arrays()] == [0] * (len(parts) + 1)


# Numbers of fixed length


@pytest.mark.parametrize("name", FIXED)
def test_numbers_in_one_piece_are_the_bytes_of_the_file(name: str, listing: Callable[..., Listed]) -> None:
    kind, dtype = FIXED[name]
    several = np.array([1, 2, 3], dtype)
    for content, numbers in ((field(NUMBER, several.tobytes()), several), (fixed_alone(several[1]), several[1:2])):
        found = listing(kind, content)
        storage = found.fixed()
        source, nbytes = storage.source, numbers.nbytes
        assert (found.count, storage.nbytes) == (len(numbers), nbytes)
        assert storage.start is not None
        assert source.run(storage.start, nbytes) is storage
        assert source.content[storage.start : storage.start + nbytes] == numbers.tobytes()
        assert found.fixed() is storage


@pytest.mark.parametrize("size", [8, 16, PIECE])
@pytest.mark.parametrize("name", FIXED)
def test_numbers_in_several_pieces_are_joined_in_their_order(
    name: str, size: int, listing: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", size)
    kind, dtype = FIXED[name]
    numbers = np.arange(2**23 - 23, 2**23).astype(dtype)
    whole = field(NUMBER, numbers.tobytes())
    for parts in (
        list(map(fixed_alone, numbers)),
        [field(NUMBER, numbers[:1].tobytes()), field(NUMBER, numbers[1:].tobytes())],
        [*map(fixed_alone, numbers[:2]), field(NUMBER, numbers[2:20].tobytes()), *map(fixed_alone, numbers[20:])],
        [field(NUMBER, b""), whole],
    ):
        found = listing(kind, *parts)
        storage = found.fixed()
        assert (found.count, storage.nbytes, storage.is_in_file) == (23, numbers.nbytes, True)
        assert storage.numbers(torch.uint8, 0, numbers.nbytes).numpy().tobytes() == numbers.tobytes()


def test_no_more_than_2_to_the_18_bytes_of_fixed_numbers_are_copied_at_a_time(listing: Callable[..., Listed]) -> None:
    many = np.arange(PIECE // 4 + 1, dtype=np.uint32)
    found = listing(FIXED32, field(NUMBER, many.tobytes()), fixed_alone(many[0]))
    storage = found.fixed()
    assert read(storage, torch.uint32) == [*many.tolist(), 0]
    assert isinstance(storage.source, Watched)
    assert storage.source.copied == [PIECE, 4, 4]


@pytest.mark.parametrize(("kind", "size"), [(FIXED32, 4), (FIXED64, 8)])
def test_a_packed_list_is_so_many_whole_numbers(kind: int, size: int, listing: Callable[..., Listed]) -> None:
    for length in range(4 * size):
        content = field(NUMBER, bytes(length))
        if length % size == 0:
            assert listing(kind, content).count == length // size
        else:
            with pytest.raises(CheckpointError, match="is damaged or incomplete: it is no protocol buffer"):
                listing(kind, content)


@pytest.mark.parametrize("kind", [VARINT, FIXED32, FIXED64])
def test_a_number_that_is_written_in_another_way_is_refused(kind: int, listing: Callable[..., Listed]) -> None:
    written = {VARINT: alone(1), FIXED32: fixed_alone(np.float32(1)), FIXED64: fixed_alone(np.float64(1))}
    for other, content in written.items():
        if other == kind:
            assert listing(kind, content).count == 1
        else:
            with pytest.raises(CheckpointError, match="is damaged or incomplete: it is no protocol buffer"):
                listing(kind, content)


# What it takes


def test_what_is_decoded_is_paid_for_by_its_bytes_and_what_is_mapped_is_not(listing: Callable[..., Listed]) -> None:
    numbers = np.arange(3, dtype=np.float32)
    apart = listing(FIXED32, *map(fixed_alone, numbers)).fixed()
    small = integers(listing(VARINT, packed(1, 2, 3, 4, 5)), np.int32, np.uint8, 255)
    for storage, nbytes in ((apart, 12), (small, 5)):
        storage.source.budget.memory = nbytes - 1
        with pytest.raises(CheckpointError, match="it takes more memory to read"):
            storage.numbers(torch.uint8, 0, nbytes)
        storage.source.budget.memory = nbytes
        storage.numbers(torch.uint8, 0, nbytes)
        storage.numbers(torch.uint8, 0, nbytes)
        assert storage.source.budget.memory == 0
    mapped = listing(FIXED32, field(NUMBER, numbers.tobytes())).fixed()
    mapped.source.budget.memory = 0
    assert mapped.numbers(torch.uint8, 0, 12).numpy().tobytes() == numbers.tobytes()


def test_nothing_is_decoded_before_it_is_wanted(listing: Callable[..., Listed]) -> None:
    found = listing(VARINT, packed(1, 2**9), packed(3))
    source = watched(found)
    source.copied.clear()
    storage = integers(found)
    assert source.copied == []
    assert read(storage) == [1, 2**9, 3]
    assert source.copied == [3, 1]
