"""Writes protocol buffers: the other half of ``files/readers/onnx/protobuf.py``.

Field numbers are those of onnx.proto (github.com/onnx/onnx).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...files.readers.onnx.protobuf import BYTES, VARINT

Array = NDArray[np.float64] | NDArray[np.float32] | NDArray[np.int64]

FLOAT, INT64, DOUBLE = 1, 7, 11  # ONNX's types
_TYPES = {"float32": FLOAT, "int64": INT64, "float64": DOUBLE}


def integer(number: int, value: int) -> bytes:
    """A field that is an integer; a negative one as 64 bits of two's complement."""
    return varint(number << 3 | VARINT) + varint(value % 2**64)


def content(number: int, value: bytes) -> bytes:
    """A field that is a message, or a run of bytes."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def text(number: int, value: str) -> bytes:
    """A field that is a text; nothing for an empty one."""
    return content(number, value.encode()) if value else b""


def entry(number: int, key: str, value: str) -> bytes:
    """A field of metadata: a key and a value."""
    return content(number, text(1, key) + text(2, value))


def tensor(values: Array, name: str = "") -> bytes:
    """A TensorProto."""
    dims = b"".join(integer(1, length) for length in values.shape)
    raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
    return dims + integer(2, _TYPES[values.dtype.name]) + text(8, name) + content(9, raw)


def node(
    operator: str,
    inputs: list[str],
    output: str,
    *,
    name: str,
    description: str = "",
    **attributes: int | float | list[int] | Array,
) -> bytes:
    """A NodeProto of ONNX's own operators with one output."""
    parts = [content(1, part.encode()) for part in inputs]
    parts += [text(2, output), text(3, name), text(4, operator)]
    parts += [content(5, _attribute(key, value)) for key, value in attributes.items()]
    return b"".join(parts) + text(6, description)


def _attribute(name: str, value: int | float | list[int] | Array) -> bytes:
    """An AttributeProto; its last field tells its type."""
    if isinstance(value, int):
        return text(1, name) + integer(3, value) + integer(20, 2)
    if isinstance(value, float):
        return text(1, name) + b"\x15" + np.float32(value).tobytes() + integer(20, 1)  # field 2, of four bytes
    if isinstance(value, list):
        return text(1, name) + b"".join(integer(8, one) for one in value) + integer(20, 7)
    return text(1, name) + content(5, tensor(value)) + integer(20, 4)


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
