"""Tensors of ONNX files are read from every storage of the standard as onnx itself reads them, or refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import read_checkpoint
from tests.hostile.bombs import field

INTEGERS: dict[int, tuple[int, int]] = {
    TensorProto.INT8: (-(2**7), 2**7 - 1),
    TensorProto.UINT8: (0, 2**8 - 1),
    TensorProto.INT16: (-(2**15), 2**15 - 1),
    TensorProto.UINT16: (0, 2**16 - 1),
    TensorProto.INT32: (-(2**31), 2**31 - 1),
    TensorProto.BOOL: (0, 1),
    TensorProto.FLOAT16: (0, 2**16 - 1),
    TensorProto.BFLOAT16: (0, 2**16 - 1),
    TensorProto.FLOAT8E4M3FN: (0, 2**8 - 1),
    TensorProto.FLOAT8E5M2: (0, 2**8 - 1),
    TensorProto.INT64: (-(2**63), 2**63 - 1),
    TensorProto.UINT32: (0, 2**32 - 1),
    TensorProto.UINT64: (0, 2**64 - 1),
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
NUMPY = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
FIELDS: dict[int, str] = {
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}


def model_of(*tensors: TensorProto) -> ModelProto:
    return helper.make_model(GraphProto(name="g", initializer=tensors))


def read(content: bytes) -> dict[str, Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m").write_bytes(content)
        return {key: tensor.clone() for key, tensor in read_checkpoint(Path(folder, "m")).state_dict.items()}


def bits(tensor: Tensor) -> list[int]:
    """The numbers as bits, so that NaN is equal to itself."""
    found: list[int] = tensor.contiguous().view(BITS[tensor.dtype.itemsize]).reshape(-1).tolist()
    return found


@st.composite
def lists_of_integers(draw: st.DrawFn) -> tuple[int, list[int]]:
    kind = draw(st.sampled_from(sorted(INTEGERS)))
    low, high = INTEGERS[kind]
    return kind, draw(st.lists(st.integers(low, high) | st.sampled_from([low, high, low + 1, high - 1]), max_size=50))


@given(lists_of_integers())
@example((TensorProto.INT64, [2**63 - 1, -(2**63), -1, 0]))
def test_integers_listed_one_by_one_are_what_onnx_reads(drawn: tuple[int, list[int]]) -> None:
    kind, numbers = drawn
    tensor = TensorProto(name="w", data_type=kind, dims=[len(numbers)])
    getattr(tensor, FIELDS.get(kind, "int32_data")).extend(numbers)
    wanted = numpy_helper.to_array(tensor)
    found = read(model_of(tensor).SerializeToString())["w"]
    assert found.shape == wanted.shape
    assert found.dtype.itemsize == wanted.dtype.itemsize
    assert bits(found) == np.frombuffer(wanted.tobytes(), NUMPY[wanted.dtype.itemsize]).tolist()
    assert str(found.dtype).removeprefix("torch.") == str(wanted.dtype)


FLOATS: dict[int, tuple[str, Any]] = {
    TensorProto.FLOAT: ("float_data", np.float32),
    TensorProto.DOUBLE: ("double_data", np.float64),
    TensorProto.COMPLEX64: ("float_data", np.complex64),
    TensorProto.COMPLEX128: ("double_data", np.complex128),
}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("raw", [False, True])
def test_floating_point_numbers_are_read_bit_for_bit(kind: int, raw: bool) -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 4)).astype(FLOATS[kind][1])
    numbers = numbers + 1j if np.iscomplexobj(numbers) else numbers
    content = numbers.tobytes() if raw else numbers.reshape(-1)
    found = read(model_of(helper.make_tensor("w", kind, (3, 4), content, raw=raw)).SerializeToString())["w"]
    assert np.array_equal(found.numpy(), numbers)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_two_numbers_of_four_bits_share_a_byte(kind: int, raw: bool, count: int) -> None:
    low = -8 if kind == TensorProto.INT4 else 0
    numbers = np.random.default_rng(1).integers(low, low + 16, size=count)
    tensor = helper.make_tensor("w", kind, (count,), numbers)
    if raw:
        content = bytes(value & 255 for value in tensor.int32_data)
        tensor = helper.make_tensor("w", kind, (count,), content, raw=True)
    assert read(model_of(tensor).SerializeToString())["w"].tolist() == numbers.tolist()


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT4, TensorProto.BOOL])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_a_tensor_of_no_numbers_needs_no_storage(kind: int, shape: tuple[int, ...]) -> None:
    found = read(model_of(TensorProto(name="w", data_type=kind, dims=shape)).SerializeToString())
    assert found["w"].shape == shape


# What no library writes, and the wire format allows: numbers that are not packed, or packed in several pieces.


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def tensor_bytes(code: int, count: int, numbers: bytes) -> bytes:
    """A model of one tensor, whose numbers are these fields."""
    return b"\x08\x0a" + field(
        7, field(5, b"\x08" + varint(count) + b"\x10" + bytes([code]) + numbers + field(8, b"w"))
    )


def single(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value % 2**64)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40), st.data())
def test_numbers_are_read_packed_or_one_by_one_in_any_mix(numbers: list[int], data: st.DataObject) -> None:
    content, rest = b"", numbers
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        part, rest = rest[:count], rest[count:]
        packed = field(7, b"".join(varint(value % 2**64) for value in part))
        content += packed if data.draw(st.booleans()) else b"".join(single(7, value) for value in part)
    assert read(tensor_bytes(TensorProto.INT64, len(numbers), content))["w"].tolist() == numbers


@pytest.mark.parametrize("pieces", [(6,), (2, 4), (1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("is_packed", [False, True])
def test_floating_point_numbers_in_pieces_are_put_together(pieces: tuple[int, ...], is_packed: bool) -> None:
    numbers, content, first = np.arange(6, dtype=np.float32) + 0.5, b"", 0
    for count in pieces:
        part = numbers[first : first + count].tobytes()
        singles = b"".join(b"\x25" + part[4 * number : 4 * number + 4] for number in range(count))
        content, first = content + (field(4, part) if is_packed else singles), first + count
    assert read(tensor_bytes(TensorProto.FLOAT, 6, content))["w"].tolist() == numbers.tolist()


@pytest.mark.parametrize("count", [2**18 - 1, 2**18, 2**18 + 1, 2**19 + 5])
@pytest.mark.parametrize("value", [5, -5])
def test_numbers_that_lie_across_the_pieces_of_decoding_are_read(count: int, value: int) -> None:
    numbers = np.full(count, value)
    numbers[::7] = 300
    found = read(model_of(helper.make_tensor("w", TensorProto.INT64, (count,), numbers)).SerializeToString())["w"]
    assert np.array_equal(found.numpy(), numbers)
    singles = b"".join(single(7, int(number)) for number in numbers[:50])
    assert read(tensor_bytes(TensorProto.INT64, 50, singles))["w"].tolist() == numbers[:50].tolist()


def typed(kind: int, field_name: str, numbers: list[Any], count: int | None = None) -> bytes:
    tensor = TensorProto(name="w", data_type=kind, dims=[len(numbers) if count is None else count])
    getattr(tensor, field_name).extend(numbers)
    return bytes(model_of(tensor).SerializeToString())


def stored_twice(change: Callable[[TensorProto], None]) -> bytes:
    tensor = helper.make_tensor("w", TensorProto.FLOAT, (1,), b"\0\0\0\0", raw=True)
    change(tensor)
    return bytes(model_of(tensor).SerializeToString())


WRONG: dict[str, tuple[bytes, str]] = {
    "a number that its type lacks": (typed(TensorProto.INT8, "int32_data", [128]), "does not have"),
    "a negative number without a sign": (typed(TensorProto.UINT8, "int32_data", [-1]), "does not have"),
    "a truth value of two": (typed(TensorProto.BOOL, "int32_data", [2]), "does not have"),
    "half precision of seventeen bits": (typed(TensorProto.FLOAT16, "int32_data", [2**16]), "does not have"),
    "a number of thirty-three bits": (typed(TensorProto.UINT32, "uint64_data", [2**32]), "does not have"),
    "fewer numbers than the shape": (typed(TensorProto.INT64, "int64_data", [1], 2), "its storage has only 8 bytes"),
    "more numbers than the shape": (typed(TensorProto.INT64, "int64_data", [1, 2], 1), "more bytes than its shape"),
    "more numbers than no numbers": (typed(TensorProto.INT64, "int64_data", [1], 0), "more bytes than its shape"),
    "integers in the field of longer ones": (typed(TensorProto.INT32, "int64_data", [1]), "in the field of another"),
    "numbers and none": (typed(TensorProto.FLOAT, "float_data", [], 3), "its storage has only 0 bytes"),
    "numbers in two fields": (stored_twice(lambda tensor: tensor.float_data.append(1)), "twice"),
    "numbers inside and outside": (
        stored_twice(lambda tensor: setattr(tensor, "data_location", TensorProto.EXTERNAL)),
        "twice",
    ),
    "raw numbers twice": (tensor_bytes(TensorProto.FLOAT, 1, field(9, bytes(4)) * 2), "twice"),
    "a divided tensor": (tensor_bytes(TensorProto.FLOAT, 1, field(3, b"") + field(9, bytes(4))), "divided"),
    "a last number without an end": (tensor_bytes(TensorProto.INT64, 1, field(7, b"\1\x80")), "no protocol buffer"),
    "a number of eleven bytes": (
        tensor_bytes(TensorProto.INT64, 1, field(7, b"\x80" * 10 + b"\1")),
        "no protocol buffer",
    ),
    "a number of sixty-five bits": (
        tensor_bytes(TensorProto.INT64, 1, field(7, b"\x80" * 9 + b"\2")),
        "no protocol buffer",
    ),
    "sixty-five bits by themselves": (
        tensor_bytes(TensorProto.INT64, 1, b"\x38" + b"\x80" * 9 + b"\2"),
        "no protocol buffer",
    ),
    "an endless number": (tensor_bytes(TensorProto.INT64, 1, field(7, b"\x80" * 300_000 + b"\1")), "no protocol"),
    "seven bytes of floats": (tensor_bytes(TensorProto.FLOAT, 1, field(4, bytes(7))), "no protocol buffer"),
    "a float written as a varint": (tensor_bytes(TensorProto.FLOAT, 1, single(4, 1)), "no protocol buffer"),
    "half a byte that is missing": (typed(TensorProto.INT4, "int32_data", [1], 3), "four-bit integers has 2 numbers"),
    "half a byte too many": (typed(TensorProto.INT4, "int32_data", [1, 1], 1), "more bytes than its shape"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_tensor_that_is_not_what_it_says_is_refused(name: str) -> None:
    content, reason = WRONG[name]
    with pytest.raises(CheckpointError, match=reason):
        read(content)


def test_texts_and_types_that_torch_lacks_are_no_part_of_the_weights() -> None:
    text = TensorProto(name="labels", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"b"])
    small = helper.make_tensor("f4", TensorProto.FLOAT4E2M1, (2,), b"\0", raw=True)
    weight = helper.make_tensor("w", TensorProto.FLOAT, (1,), [1.0])
    assert read(model_of(text, small, weight).SerializeToString()).keys() == {"w"}
