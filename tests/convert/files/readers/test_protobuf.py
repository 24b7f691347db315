"""Messages are walked as protocol buffers' own library writes and reads them."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from google.protobuf.descriptor_pb2 import SourceCodeInfo, UninterpretedOption
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.limits import MAX_NAME
from conv2attn.convert.files.readers.common.stored import Source
from conv2attn.convert.files.readers.onnx.protobuf import BYTES, FIXED32, FIXED64, VARINT, Message

SIGNED = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, 2**62, 2**63 - 1, -1, -(2**63)])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def message(content: bytes, start: int = 0, end: int | None = None) -> Message:
    """Some bytes of a file as a message; the file's name is gone again."""
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return Message(Source(Path(file.name)), start, len(content) if end is None else end)


@given(
    positive=st.integers(0, 2**64 - 1), negative=SIGNED, double=st.floats(), text=TEXTS, before=st.binary(max_size=3)
)
def test_every_kind_of_field_is_found_where_it_lies(
    positive: int, negative: int, double: float, text: str, before: bytes
) -> None:
    option = UninterpretedOption(positive_int_value=positive, negative_int_value=negative, double_value=double)
    option.identifier_value, option.string_value = text, text.encode()
    content = before + option.SerializeToString() + b"\xff"
    walked = message(content, len(before), len(content) - 1)
    fields = {field.number: field for field in walked.fields()}
    assert set(fields) == {3, 4, 5, 6, 7}
    assert fields[4].value == positive
    assert walked.integers(fields[5]) == [negative]
    assert fields[6].end - fields[6].start == 8
    assert walked.text(fields[3]) == text
    assert content[fields[7].start : fields[7].end] == text.encode()
    assert [fields[number].value for number in (3, 6, 7)] == [None, None, None]


@given(st.floats(width=32), SIGNED, st.lists(SIGNED, max_size=5))
def test_fields_of_four_bytes_are_passed_over(number: float, integer: int, integers: list[int]) -> None:
    walked = message(AttributeProto(name="a", f=number, i=integer, ints=integers).SerializeToString())
    fields = list(walked.fields())
    assert [field.end - field.start for field in fields if field.number == 2] == [4]
    assert [walked.integers(field) for field in fields if field.number == 3] == [[integer]]
    assert [walked.integers(field) for field in fields if field.number == 8] == [[found] for found in integers]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_integers_may_be_packed(integers: list[int]) -> None:
    walked = message(SourceCodeInfo.Location(path=integers, leading_comments="x").SerializeToString())
    packed, comments = walked.fields()
    assert walked.integers(packed) == integers
    inner = walked.message(comments)
    assert (inner.start, inner.end) == (comments.start, comments.end)


def test_the_last_text_of_a_field_counts() -> None:
    walked = message(b"\x0a\x01a\x12\x01b\x12\x01c\x1a\x01d\x20\x05")  # a in field 1, b and c in 2, d in 3, and 5 in 4
    assert [walked.last_text(number) for number in (1, 2, 3, 5)] == ["a", "c", "d", ""]
    with pytest.raises(CheckpointError):
        walked.last_text(4)


LONG = b"\xff" * 9  # and a last byte
DAMAGED = {
    "the field 0": b"\x00\x01",
    "the field 0 of bytes": b"\x02\x00",
    "the field 0 of four bytes": b"\x05\0\0\0\0",
    "a start of a group": b"\x0b",
    "an end of a group": b"\x0c",
    "the kind 6": b"\x0e\0\0\0\0\0\0\0\0",
    "the kind 7": b"\x0f\0\0\0\0\0\0\0\0",
    "a key that is cut": b"\x80",
    "an integer that is cut": b"\x08\x80",
    "no integer": b"\x08",
    "an integer of eleven bytes": b"\x08" + LONG + b"\x81\x01",
    "an integer of eleven bytes that is 0": b"\x08" + b"\x80" * 10 + b"\x00",
    **{f"an integer of 2 to the power of {64 + bit}": b"\x08" + b"\x80" * 9 + bytes([2 << bit]) for bit in range(6)},
    "an integer over 2 to the power of 64": b"\x08\x81" + b"\x80" * 8 + b"\x02",
    "bytes beyond the end": b"\x0a\x03ab",
    "bytes far beyond the end": b"\x0a" + LONG + b"\x01",
    "four bytes that are cut": b"\x0d\0\0\0",
    "eight bytes that are cut": b"\x09\0\0\0\0\0\0\0",
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("after", [b"", bytes(16)], ids=["at the file's end", "within a file"])
@pytest.mark.parametrize("before", [b"", b"\x08\x01"], ids=["first", "after a field"])
def test_a_damaged_message_is_refused(name: str, after: bytes, before: bytes) -> None:
    content = before + DAMAGED[name]
    with pytest.raises(CheckpointError, match="is damaged or incomplete: it is no protocol buffer"):
        list(message(content + after, 0, len(content)).fields())


@pytest.mark.parametrize("after", [b"", b"\x01", b"\x01\x01"])
def test_packed_integers_end_with_their_field(after: bytes) -> None:
    """The last integer would go on behind it."""
    walked = message(b"\x0a\x02\x01\x80" + after)
    packed = next(iter(walked.fields()))
    with pytest.raises(CheckpointError, match="no protocol buffer"):
        walked.integers(packed)


def test_the_largest_fields_that_fit_are_found() -> None:
    for content in (b"\x0a\x02ab", b"\x0d\0\0\0\0", b"\x09" + bytes(8), b"\x08" + LONG + b"\x01"):
        (field,) = message(content + b"\x80", 0, len(content)).fields()
        assert (field.number, field.end) == (1, len(content))


@pytest.mark.parametrize("length", [0, 1, MAX_NAME - 1, MAX_NAME])
def test_a_text_is_read_up_to_the_length_of_a_name(length: int) -> None:
    walked = message(AttributeProto(name="x" * length).SerializeToString())
    (name,) = walked.fields()
    assert walked.text(name) == "x" * length


def test_a_longer_text_is_refused() -> None:
    walked = message(AttributeProto(name="x" * (MAX_NAME + 1)).SerializeToString())
    (name,) = walked.fields()
    with pytest.raises(CheckpointError, match="a name of more than 4096 bytes"):
        walked.text(name)


@pytest.mark.parametrize("content", [b"x" * MAX_NAME, "\U0001f600".encode() + b"x" * (MAX_NAME - 4)])
def test_a_text_is_charged_for_what_it_takes(content: bytes) -> None:
    """One wide letter makes every letter of a text as large."""
    walked = message(UninterpretedOption(string_value=content).SerializeToString())
    (field,) = walked.fields()
    before = walked.source.budget.memory
    taken = sys.getsizeof(walked.text(field))
    assert taken <= before - walked.source.budget.memory <= 3 * taken


@pytest.mark.parametrize("content", [b"W\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"])
def test_a_text_that_is_not_utf8_is_refused(content: bytes) -> None:
    """Two such names would become one. A text that may be any bytes is read as far as it is text."""
    walked = message(UninterpretedOption(string_value=content).SerializeToString())
    (field,) = walked.fields()
    with pytest.raises(CheckpointError, match="holds a name that is not text in UTF-8"):
        walked.text(field)
    assert "\ufffd" in walked.text(field, errors="replace")


WRITTEN = {"text": BYTES, "message": BYTES, "integer": VARINT, "integers": VARINT, "enum": VARINT}


@pytest.mark.parametrize("kind", [VARINT, FIXED64, BYTES, FIXED32])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_field_that_is_written_in_another_way_than_its_type_is_refused(name: str, kind: int) -> None:
    """Protocol buffers' own library passes over it."""
    content = {VARINT: b"\1", FIXED64: b"\1" * 8, BYTES: b"\1\1", FIXED32: b"\1" * 4}[kind]
    walked = message(bytes([1 << 3 | kind]) + content)
    (field,) = walked.fields()
    read = {"enum": lambda field: walked.enum(field, (1,))}.get(name, getattr(walked, name))
    if kind == WRITTEN[name] or (name, kind) == ("integers", BYTES):
        read(field)
        return
    with pytest.raises(CheckpointError, match="is no protocol buffer"):
        read(field)


@given(SIGNED)
def test_an_integer_is_signed(number: int) -> None:
    walked = message(AttributeProto(i=number).SerializeToString())
    (field,) = walked.fields()
    assert walked.integer(field) == number
    assert walked.enum(field, (0, number)) == number
    with pytest.raises(CheckpointError, match=f"holds the number {number} where the standard knows no such one"):
        walked.enum(field, (number + 1,))


def test_an_empty_text_is_charged_for() -> None:
    walked = message(AttributeProto(name="").SerializeToString())
    (field,) = walked.fields()
    before = walked.source.budget.memory
    assert sys.getsizeof(walked.text(field)) <= before - walked.source.budget.memory <= 100


@pytest.mark.parametrize("packed", [False, True])
def test_integers_are_charged_for_what_they_take(packed: bool) -> None:
    count = 1000
    written = SourceCodeInfo.Location(path=[2**31 - 1] * count) if packed else AttributeProto(ints=[2**62] * count)
    walked = message(written.SerializeToString())
    fields = list(walked.fields())
    budget = walked.source.budget
    memory, steps = budget.memory, budget.steps
    found = [integer for field in fields for integer in walked.integers(field)]
    taken = sum(map(sys.getsizeof, found)) + sys.getsizeof(found)
    assert taken <= memory - budget.memory <= 2 * taken
    assert steps - budget.steps == (count if packed else 0)  # what is not packed was charged as a field


def test_fields_are_charged_two_steps_each_and_memory_while_they_are_kept() -> None:
    walked = message(AttributeProto(ints=[1] * 1000).SerializeToString())
    budget = walked.source.budget
    memory, steps = budget.memory, budget.steps
    with walked.grouped() as fields:
        assert list(map(len, fields.values())) == [1000]
        assert (memory - budget.memory, steps - budget.steps) == (320 * 1000, 2 * 1000)
    assert budget.memory == memory


@pytest.mark.parametrize(("text", "most"), [("", 80), ("abc", 83), ("\N{GRINNING FACE}a", 80 + 4 * 5)])
def test_a_text_is_charged_80_bytes_and_its_letters(text: str, most: int) -> None:
    walked = message(AttributeProto(name=text).SerializeToString())
    (field,) = walked.fields()
    before = walked.source.budget.memory
    walked.text(field)
    assert before - walked.source.budget.memory == most


def test_an_integer_is_charged_48_bytes() -> None:
    walked = message(AttributeProto(i=7).SerializeToString())
    (field,) = walked.fields()
    before = walked.source.budget.memory
    assert walked.integers(field) == [7]
    assert before - walked.source.budget.memory == 48
