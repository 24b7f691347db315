"""A tensor of an ONNX model is read from wherever its numbers lie, and only from there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import StringStringEntryProto, TensorProto
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.onnx.protobuf import Message
from conv2attn.convert.files.readers.onnx.tensors import DTYPES, NotPlain, read_tensor, sparse_name
from tests.hostile.bombs import field

Describe = Callable[..., Message]

PLAIN: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.BOOL: torch.bool,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.COMPLEX64: torch.complex64,
    TensorProto.COMPLEX128: torch.complex128,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: torch.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
}
HALVES: dict[int, torch.dtype] = {TensorProto.UINT4: torch.uint8, TensorProto.INT4: torch.int8}
# Bits and sign of what is listed as integers; floating-point numbers of few bits are, by their bits.
LISTED: dict[int, tuple[str, int, int]] = {
    TensorProto.UINT8: ("int32_data", 0, 2**8 - 1),
    TensorProto.INT8: ("int32_data", -(2**7), 2**7 - 1),
    TensorProto.UINT16: ("int32_data", 0, 2**16 - 1),
    TensorProto.INT16: ("int32_data", -(2**15), 2**15 - 1),
    TensorProto.BOOL: ("int32_data", 0, 1),
    TensorProto.FLOAT16: ("int32_data", 0, 2**16 - 1),
    TensorProto.BFLOAT16: ("int32_data", 0, 2**16 - 1),
    TensorProto.FLOAT8E4M3FN: ("int32_data", 0, 2**8 - 1),
    TensorProto.FLOAT8E4M3FNUZ: ("int32_data", 0, 2**8 - 1),
    TensorProto.FLOAT8E5M2: ("int32_data", 0, 2**8 - 1),
    TensorProto.FLOAT8E5M2FNUZ: ("int32_data", 0, 2**8 - 1),
    TensorProto.UINT32: ("uint64_data", 0, 2**32 - 1),
}
WHOLE: dict[int, tuple[str, int, int]] = {
    TensorProto.INT32: ("int32_data", -(2**31), 2**31 - 1),
    TensorProto.INT64: ("int64_data", -(2**63), 2**63 - 1),
    TensorProto.UINT64: ("uint64_data", 0, 2**64 - 1),
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.fixture
def message(tmp_path: Path) -> Describe:
    """A tensor's message, from its fields or from its bytes."""

    def describe(content: bytes = b"", **fields: Any) -> Message:
        whole = TensorProto(**fields).SerializeToString() + content
        (tmp_path / "m.onnx").write_bytes(whole)
        return Message(Source(tmp_path / "m.onnx"), 0, len(whole))

    return describe


def no_file(name: str) -> Source:
    raise AssertionError(f"opened {name!r}")


def read(message: Message) -> Tensor:
    _, tensor = read_tensor(message, no_file)
    assert isinstance(tensor, StoredTensor)
    assert tensor.flaw() is None
    return tensor.read()


def integers(tensor: Tensor) -> list[int]:
    """The bits of each number, with the sign that its dtype has."""
    as_bits = tensor.view(BITS[tensor.dtype.itemsize]) if tensor.dtype.is_floating_point else tensor
    found: list[int] = as_bits.tolist()
    mask = 256**tensor.dtype.itemsize - 1
    return [number & mask for number in found] if tensor.dtype.is_floating_point else [int(number) for number in found]


def test_every_type_that_torch_has_is_known_and_no_other() -> None:
    assert DTYPES == PLAIN


@pytest.mark.parametrize("kind", [*PLAIN, *HALVES])
def test_raw_numbers_are_the_file_s_bytes_and_no_more_than_the_shape(kind: int, message: Describe) -> None:
    dtype = {**PLAIN, **HALVES}[kind]
    size = 3 if kind in HALVES else 6 * dtype.itemsize
    found = read(message(name="w", dims=[2, 3], data_type=kind, raw_data=bytes(size)))
    assert (found.dtype, found.shape) == (dtype, (2, 3))
    name = "n" * 101
    with pytest.raises(CheckpointError, match=rf"m\.onnx is damaged: '{name[:100]}' has more bytes than its shape"):
        read_tensor(message(name=name, dims=[2, 3], data_type=kind, raw_data=bytes(size + 1)), no_file)


@pytest.mark.parametrize("kind", [*LISTED, *WHOLE])
def test_integers_are_read_up_to_the_smallest_and_the_largest(kind: int, message: Describe) -> None:
    name, low, high = {**LISTED, **WHOLE}[kind]
    found = read(message(name="w", dims=[3], data_type=kind, **{name: [high, low, 1]}))
    assert found.dtype == PLAIN[kind]
    assert integers(found) == [high, low, 1]
    for wrong in (high + 1, low - 1) if kind in LISTED else ():
        if wrong < 0 and name == "uint64_data":
            continue
        with pytest.raises(CheckpointError, match="lists a number that the tensor's type does not have"):
            read(message(name="w", dims=[1], data_type=kind, **{name: [wrong]}))


@pytest.mark.parametrize(
    ("kind", "name", "numbers", "found"),
    [
        (TensorProto.FLOAT, "float_data", [1.5, -2.0], [1.5, -2.0]),
        (TensorProto.DOUBLE, "double_data", [1.1, -2.2], [1.1, -2.2]),
        (TensorProto.COMPLEX64, "float_data", [1.5, -2.0, 0.5, 3.0], [1.5 - 2j, 0.5 + 3j]),
        (TensorProto.COMPLEX128, "double_data", [1.1, -2.2, 0.5, 3.0], [1.1 - 2.2j, 0.5 + 3j]),
    ],
)
def test_floating_point_numbers_are_listed_one_after_the_other(
    kind: int, name: str, numbers: list[float], found: list[complex], message: Describe
) -> None:
    assert read(message(name="w", dims=[2], data_type=kind, **{name: numbers})).tolist() == found


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize(
    ("kind", "numbers"), [(TensorProto.UINT4, [1, 15, 8, 0, 7]), (TensorProto.INT4, [1, -1, -8, 0, 7])]
)
def test_the_first_of_two_numbers_of_four_bits_is_the_lower_half_of_their_byte(
    kind: int, numbers: list[int], is_raw: bool, message: Describe
) -> None:
    packed = [0xF1, 0x08, 0x07]
    given: dict[str, Any] = {"raw_data": bytes(packed)} if is_raw else {"int32_data": packed}
    for count in (5, 6):
        found = read(message(name="w", dims=[count], data_type=kind, **given))
        assert found.tolist() == [*numbers, 0][:count]
    for wrong in (4, 3):
        with pytest.raises(CheckpointError, match="'w' has more bytes than its shape"):
            read_tensor(message(name="w", dims=[wrong], data_type=kind, **given), no_file)
    with pytest.raises(CheckpointError, match="is damaged: a tensor of four-bit integers has 4 numbers"):
        read_tensor(message(name="w", dims=[7], data_type=kind, **given), no_file)
    if not is_raw:
        for wrong in (256, -1):
            with pytest.raises(CheckpointError, match="does not have"):
                read(message(name="w", dims=[2], data_type=kind, int32_data=[wrong]))


def test_numbers_of_four_bits_take_two_bytes_each_until_they_are_one(message: Describe) -> None:
    described = message(name="w", dims=[5], data_type=TensorProto.INT4, raw_data=bytes(3))
    _, tensor = read_tensor(described, no_file)
    assert isinstance(tensor, StoredTensor)
    budget = described.source.budget
    budget.memory = 9
    with pytest.raises(CheckpointError, match="takes more memory"):
        tensor.read()
    budget.memory = 10
    tensor.read()
    assert budget.memory == 5


@pytest.mark.parametrize("code", [0, 8, *range(23, 31)])
def test_other_types_are_told_and_those_that_torch_lacks_are_no_part_of_a_state_dict(
    code: int, message: Describe
) -> None:
    name, tensor = read_tensor(message(name="w", data_type=code, raw_data=b"abc"), no_file)
    assert name == "w"
    assert isinstance(tensor, OddTensor)
    assert isinstance(tensor, NotPlain) == (code not in (0, 29, 30))
    assert tensor.kind == ("textual" if code == 8 else f"quantized or unknown (ONNX type {code})")


def test_a_tensor_that_says_nothing_has_no_name_and_no_type(message: Describe) -> None:
    name, tensor = read_tensor(message(), no_file)
    assert name == ""
    assert isinstance(tensor, OddTensor)
    assert tensor.kind == "quantized or unknown (ONNX type 0)"


def test_a_part_of_a_tensor_is_told_and_its_numbers_are_not_read(message: Describe) -> None:
    segment = TensorProto.Segment(begin=0, end=1)
    given: dict[str, Any] = {"name": "w", "dims": [1], "data_type": 1, "segment": segment}
    name, tensor = read_tensor(message(**given, float_data=[1.0]), no_file)
    assert (name, isinstance(tensor, OddTensor)) == ("", True)  # what comes behind it, the name too, is not read
    assert isinstance(tensor, OddTensor)
    assert tensor.kind == "divided"


def twice(message: Message, name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_tensor(message, no_file)
    assert str(caught.value) == f"{message.source.path} stores the numbers of {name!r} twice"


def test_numbers_lie_in_one_place(message: Describe) -> None:
    name = "n" * 101
    named = field(8, name.encode())
    given: dict[str, Any] = {"dims": [1], "data_type": 1}
    one = bytes(4)
    external = bytes([14 << 3, 1])
    listed = field(4, one)
    raw = field(9, one)
    for content in (listed + raw, raw + listed, raw + external, listed + external, raw + listed + external):
        twice(message(named + content, **given), name[:100])
    for content in (raw + raw, field(9, b"") + raw, listed + field(7, b"\1"), field(7, b"") + listed):
        twice(message(named + content, **given), name[:100])
    for content in (listed + field(9, b""), field(9, b"") + listed, field(4, b"") + raw, raw + bytes([14 << 3, 0])):
        assert read(message(named + content, **given)).tolist() == [0.0]
    for location in (2, 7):  # other readers pass over what the standard does not have
        with pytest.raises(CheckpointError, match=f"holds the number {location} where the standard"):
            read(message(named + raw + bytes([14 << 3, 1, 14 << 3, location]), **given))
    with pytest.raises(CheckpointError, match="is no protocol buffer"):
        read(message(named + bytes([9 << 3, 1]) + raw, **given))
    assert read(message(named, dims=[0], data_type=1)).shape == (0,)


@pytest.mark.parametrize("number", [6, 12, 15, 16])
def test_what_else_a_tensor_says_changes_nothing(number: int, message: Describe, beside: Source) -> None:
    """Texts, a description, entries of metadata, and fields that the standard does not have."""
    said = field(number, b"x") if number < 16 else bytes([130, 1, 1, 120])
    content = field(9, torch.tensor([1.0, 2.0]).numpy().tobytes())
    assert read(message(said + content + said, name="w", dims=[2], data_type=1)).tolist() == [1.0, 2.0]
    described = outside(message, location="data", offset="4")
    given = described.source.bytes(0, described.end) + said
    tensor = read_tensor(message(given), lambda name: beside)[1]
    assert isinstance(tensor, StoredTensor)
    assert tensor.read().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE])
def test_numbers_are_listed_in_the_field_of_their_type(kind: int, message: Describe) -> None:
    name = "n" * 101
    with pytest.raises(CheckpointError) as caught:
        read_tensor(message(name=name, dims=[1], data_type=kind, int64_data=[1]), no_file)
    assert str(caught.value).endswith(f"m.onnx lists the numbers of {name[:100]!r} in the field of another type")
    assert read(message(dims=[0], data_type=kind, int64_data=[])).shape == (0,)


def test_dimensions_may_come_one_by_one_and_the_last_name_counts(message: Describe) -> None:
    content = field(1, bytes([2, 1])) + bytes([8, 3]) + field(8, b"a") + field(8, b"b") + bytes([16, 9, 16, 1])
    name, tensor = read_tensor(message(content + field(9, bytes(24))), no_file)
    assert isinstance(tensor, StoredTensor)
    assert (name, tensor.shape, tensor.dtype) == ("b", (2, 1, 3), torch.float32)


def outside(message: Describe, dims: int = 2, /, **entries: str) -> Message:
    given = [StringStringEntryProto(key=key, value=value) for key, value in entries.items()]
    return message(name="w", dims=[dims], data_type=1, data_location=TensorProto.EXTERNAL, external_data=given)


@pytest.fixture
def beside(tmp_path: Path) -> Source:
    """A file of the numbers 0 to 4."""
    (tmp_path / "data").write_bytes(torch.arange(5, dtype=torch.float32).numpy().tobytes())
    return Source(tmp_path / "data")


def watched(source: Source, opened: list[str]) -> Callable[[str], Source]:
    """Opens a file by any name, and notes which."""

    def open_beside(name: str) -> Source:
        opened.append(name)
        return source

    return open_beside


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ({}, [0.0, 1.0]),
        ({"offset": "8"}, [2.0, 3.0]),
        ({"offset": "8", "length": "8"}, [2.0, 3.0]),
        ({"length": "8"}, [0.0, 1.0]),
        ({"length": ""}, [0.0, 1.0]),
        ({"offset": "0" * 30 + "12", "length": "0000008"}, [3.0, 4.0]),
        ({"checksum": "x", "offset": "4"}, [1.0, 2.0]),
    ],
)
def test_external_numbers_lie_where_the_entries_say(
    entries: dict[str, str], found: list[float], message: Describe, beside: Source
) -> None:
    opened: list[str] = []
    tensor = read_tensor(outside(message, location="data", **entries), watched(beside, opened))[1]
    assert isinstance(tensor, StoredTensor)
    assert tensor.read().tolist() == found
    assert opened == ["data"]


def test_an_entry_that_is_given_twice_counts_as_the_last_and_one_without_a_key_not(
    message: Describe, beside: Source
) -> None:
    entry = StringStringEntryProto(key="offset", value="8").SerializeToString()
    described = outside(message, location="data", offset="4")
    content = described.source.bytes(0, described.end) + field(13, entry) + field(13, field(2, b"16"))
    nowhere: dict[str, Any] = {"dims": [2], "data_type": 1, "data_location": 1}
    for given, fields, name, found in ((content, {}, "data", [2.0, 3.0]), (b"", nowhere, "", [0.0, 1.0])):
        opened: list[str] = []
        tensor = read_tensor(message(given, **fields), watched(beside, opened))[1]
        assert isinstance(tensor, StoredTensor)
        assert tensor.read().tolist() == found
        assert opened == [name]


def test_external_numbers_end_where_it_is_said_or_anywhere(message: Describe, beside: Source) -> None:
    for length, flaw in (("8", False), ("7", True), ("0", True)):
        _, tensor = read_tensor(outside(message, location="data", length=length), lambda name: beside)
        assert isinstance(tensor, StoredTensor)
        assert (tensor.flaw() is not None) == flaw
    with pytest.raises(CheckpointError, match="data is damaged: 'w' has more bytes than its shape"):
        read_tensor(outside(message, location="data", length="9"), lambda name: beside)
    _, tensor = read_tensor(outside(message, 0, location="data", offset="20"), lambda name: beside)
    assert isinstance(tensor, StoredTensor)
    assert tensor.flaw() is None
    path = re.escape(str(beside.path))
    with pytest.raises(CheckpointError, match=rf"m\.onnx names external data beyond the end of {path}$"):
        read_tensor(outside(message, 0, location="data", offset="21"), lambda name: beside)


@pytest.mark.parametrize(
    ("offset", "length"),
    [("x", "8"), ("-4", "8"), ("", "8"), ("0", "x"), ("0", "-8"), ("1.0", ""), ("0" * 33, "0000008"), ("0" * 40, "")],
)
def test_offsets_and_lengths_are_numbers_of_less_than_forty_digits(
    offset: str, length: str, message: Describe, beside: Source
) -> None:
    with pytest.raises(CheckpointError, match="names external data by an offset that is no number"):
        read_tensor(outside(message, location="data", offset=offset, length=length), lambda name: beside)
    _, tensor = read_tensor(outside(message, location="data", offset="0" * 32, length="0000008"), lambda name: beside)
    assert isinstance(tensor, StoredTensor)


@pytest.mark.parametrize(
    ("sparse", "name"),
    [
        (b"", ""),
        (field(2, field(8, b"k")), ""),
        (field(1, field(8, b"s")) + field(2, field(8, b"k")), "s"),
        (field(2, field(8, b"k")) + field(1, field(7, b"k") + field(8, b"s") + field(9, b"k")), "s"),
        (field(1, field(8, b"k")) + field(1, field(8, b"s")) + field(1, b""), "s"),
    ],
)
def test_a_sparse_tensor_is_called_like_its_values_whose_last_name_counts(
    sparse: bytes, name: str, tmp_path: Path
) -> None:
    (tmp_path / "sparse").write_bytes(sparse)
    assert sparse_name(Message(Source(tmp_path / "sparse"), 0, len(sparse))) == name
