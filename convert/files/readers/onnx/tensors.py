"""Tensors of an ONNX model, in every way that onnx.proto lets them be stored.

raw_data      the numbers' bytes
external      the same, in a file beside the model
float_data    FLOAT and COMPLEX64
double_data   DOUBLE and COMPLEX128
int32_data    INT32, and all types of fewer bits: FLOAT16, BFLOAT16 and FLOAT8 by their bits, two of 4 bits in one
int64_data    INT64
uint64_data   UINT64 and UINT32
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....errors import CheckpointError
from ..common.beside import OpenBeside
from ..common.made import made
from ..common.stored import OddTensor, Source, Storage, StoredTensor
from .listed import Listed
from .protobuf import FIXED32, FIXED64, VARINT, Field, Message

_DIMS, _TYPE, _SEGMENT, _NAME, RAW, EXTERNAL, LOCATION = 1, 2, 3, 8, 9, 13, 14
_FLOATS, _INTEGERS, _LONGS, _DOUBLES, _UNSIGNED = 4, 5, 7, 10, 11
_KEY, _VALUE = 1, 2  # of an entry of external data
_SPARSE_VALUES = 1  # of a sparse tensor


class _Type(NamedTuple):
    """A type of ONNX that torch has, or that is unpacked to one that torch has.

    Attributes:
        dtype: Torch's.
        field: The number of the field that lists its numbers.
        kept: What is kept of each varint of that field; None where numbers have a fixed length.
    """

    dtype: torch.dtype
    field: int
    kept: type[np.integer[Any]] | None = None


_UINT4, _INT4 = 21, 22
_TEXT = 8
_NO_TORCH = (_TEXT, *range(23, 29))  # types that torch has no dtype for
_TYPES = {
    1: _Type(torch.float32, _FLOATS),
    2: _Type(torch.uint8, _INTEGERS, np.uint8),
    3: _Type(torch.int8, _INTEGERS, np.int8),
    4: _Type(torch.uint16, _INTEGERS, np.uint16),
    5: _Type(torch.int16, _INTEGERS, np.int16),
    6: _Type(torch.int32, _INTEGERS, np.int32),
    7: _Type(torch.int64, _LONGS, np.int64),
    9: _Type(torch.bool, _INTEGERS, np.uint8),
    10: _Type(torch.float16, _INTEGERS, np.uint16),
    11: _Type(torch.float64, _DOUBLES),
    12: _Type(torch.uint32, _UNSIGNED, np.uint32),
    13: _Type(torch.uint64, _UNSIGNED, np.uint64),
    14: _Type(torch.complex64, _FLOATS),
    15: _Type(torch.complex128, _DOUBLES),
    16: _Type(torch.bfloat16, _INTEGERS, np.uint16),
    17: _Type(torch.float8_e4m3fn, _INTEGERS, np.uint8),
    18: _Type(torch.float8_e4m3fnuz, _INTEGERS, np.uint8),
    19: _Type(torch.float8_e5m2, _INTEGERS, np.uint8),
    20: _Type(torch.float8_e5m2fnuz, _INTEGERS, np.uint8),
    _UINT4: _Type(torch.uint8, _INTEGERS, np.uint8),
    _INT4: _Type(torch.int8, _INTEGERS, np.uint8),
}
DTYPES = {code: kind.dtype for code, kind in _TYPES.items() if code not in (_UINT4, _INT4)}
"""Torch's dtype for each of ONNX's types that has one."""
_WRITTEN = {_FLOATS: FIXED32, _DOUBLES: FIXED64, _INTEGERS: VARINT, _LONGS: VARINT, _UNSIGNED: VARINT}
_HELD: dict[int, type[np.integer[Any]]] = {_INTEGERS: np.int32, _LONGS: np.int64, _UNSIGNED: np.uint64}


class NotPlain(OddTensor):
    """A tensor of a type that the standard has and torch lacks: it is no part of a state dict."""


def sparse_name(message: Message) -> str:
    """The name of a sparse tensor: that of its values."""
    name = ""
    for part in message.fields():
        if part.number == _SPARSE_VALUES:  # of which other readers merge several to one
            name = message.message(part).last_text(_NAME) or name
    return name


def read_tensor(message: Message, open_beside: OpenBeside) -> tuple[str, StoredTensor | OddTensor]:
    """A tensor that a message describes, and its name.

    Args:
        message: A TensorProto.
        open_beside: Opens a file that holds external data.

    Raises:
        CheckpointError: The message is damaged, says two things, or names external data that cannot be used.
    """
    name, code, shape = "", 0, list[int]()
    raw: Field | None = None
    listed: Listed | None = None
    field = 0  # the one that the numbers are listed in
    external: dict[str, str] | None = None
    is_external = False
    for part in message.fields():
        if part.number == _NAME:
            name = message.text(part)
        elif part.number == _DIMS:
            shape += message.integers(part)
        elif part.number == _TYPE:
            code = message.integer(part)
        elif part.number == RAW:
            if raw is not None:
                raise _ambiguous(message, name)
            message.message(part)  # which refuses what are no bytes
            raw = part
        elif part.number in _WRITTEN:
            if listed is None:
                listed, field = Listed(message, part.number, _WRITTEN[part.number]), part.number
            if part.number != field:
                raise _ambiguous(message, name)
            listed.add(part)
        elif part.number == EXTERNAL:
            key, value = _entry(message.message(part))
            external = {**(external or {}), key: value}
        elif part.number == LOCATION:
            is_external = lies_outside(message, part)
        elif part.number == _SEGMENT:
            return name, OddTensor("divided")
    if code not in _TYPES:
        return name, _foreign(code)
    count = 0 if listed is None else listed.count
    if (raw is not None and raw.end > raw.start) + (count > 0) + is_external > 1:
        raise _ambiguous(message, name)
    if is_external:
        storage, is_whole = _external(external or {}, message.source, open_beside)
    else:
        storage, is_whole = _inside(_TYPES[code], message, raw, listed if count else None, field, name), True
    return name, _tensor(code, storage, shape, name, is_whole=is_whole)


def lies_outside(message: Message, location: Field) -> bool:
    """Whether the numbers of a tensor lie in another file.

    Args:
        message: A TensorProto.
        location: Its field of this meaning.

    Raises:
        CheckpointError: It says neither.
    """
    return message.enum(location, (0, 1)) == 1


def _foreign(code: int) -> OddTensor:
    kind = "textual" if code == _TEXT else f"quantized or unknown (ONNX type {code})"
    return (NotPlain if code in _NO_TORCH else OddTensor)(kind)


def _ambiguous(message: Message, name: str) -> CheckpointError:
    return CheckpointError(f"{message.source.path} stores the numbers of {name[:100]!r} twice")


def _inside(kind: _Type, message: Message, raw: Field | None, listed: Listed | None, field: int, name: str) -> Storage:
    """The numbers of a tensor that lie in the model itself."""
    if listed is None:
        start, end = (message.start, message.start) if raw is None else (raw.start, raw.end)
        return message.source.run(start, end - start)
    if field != kind.field:
        raise CheckpointError(f"{message.source.path} lists the numbers of {name[:100]!r} in the field of another type")
    if kind.kept is None:
        return listed.fixed()
    largest = 1 if kind.dtype == torch.bool else int(np.iinfo(kind.kept).max)
    return listed.integers(_HELD[field], kind.kept, largest)


def _tensor(code: int, storage: Storage, shape: list[int], name: str, *, is_whole: bool) -> StoredTensor:
    """The tensor over its numbers, of which there are not more than its shape has."""
    dtype = _TYPES[code].dtype
    tensor = StoredTensor.of(storage, dtype, shape=shape)
    needed = (tensor.numel + 1) // 2 if code in (_UINT4, _INT4) else tensor.numel * dtype.itemsize
    if is_whole and needed < storage.nbytes:
        raise CheckpointError(f"{storage.source.path} is damaged: {name[:100]!r} has more bytes than its shape")
    return _unpacked(code, storage, tensor) if code in (_UINT4, _INT4) else tensor


def _unpacked(code: int, storage: Storage, tensor: StoredTensor) -> StoredTensor:
    """A tensor of four-bit integers, of which two share a byte, the first its lower half."""
    packed = StoredTensor.of(storage, torch.uint8, shape=[(tensor.numel + 1) // 2])
    if (flaw := packed.flaw()) is not None:
        raise CheckpointError(f"{storage.source.path} is damaged: a tensor of four-bit integers {flaw}")

    def make() -> Tensor:
        numbers = packed.read()
        halves = torch.empty(len(numbers), 2, dtype=torch.uint8)
        halves[:, 0], halves[:, 1] = numbers & 15, numbers >> 4
        found = halves.view(-1)[: tensor.numel]
        return found if code == _UINT4 else found.bitwise_xor_(8).view(torch.int8).sub_(8)

    return made(storage.source, tensor.dtype, tensor.shape, make, spare=tensor.numel)


def _entry(message: Message) -> tuple[str, str]:
    texts = {part.number: message.text(part) for part in message.fields() if part.number in (_KEY, _VALUE)}
    return texts.get(_KEY, ""), texts.get(_VALUE, "")


def _external(entries: dict[str, str], source: Source, open_beside: OpenBeside) -> tuple[Storage, bool]:
    """Where a tensor lies in a file beside the model, and whether that says where it ends."""
    file = open_beside(entries.get("location", ""))
    offset, length = entries.get("offset", "0"), entries.get("length", "")
    if not (offset.isdecimal() and (length.isdecimal() or not length) and len(offset + length) < 40):
        raise CheckpointError(f"{source.path} names external data by an offset that is no number")
    start = int(offset)
    if start > file.size:
        raise CheckpointError(f"{source.path} names external data beyond the end of {file.path}")
    return file.run(start, int(length) if length else file.size - start), bool(length)
