"""Safetensors: eight bytes of header length, a JSON header, then the numbers of all tensors without gaps.

The header is checked here, and tensors are mapped: ``safetensors`` itself accepts a key that appears twice, dtypes
that are not numbers, and headers that take a gigabyte to read.
"""

from __future__ import annotations

import struct
import sys

from ...errors import CheckpointError
from .common.limits import MAX_HEADER, MAX_TENSORS, parse_json
from .common.stored import DTYPES, Source, Storage, StoredTensor

METADATA = "__metadata__"
_FORMATS = ("format", "conv2attn")  # names in the metadata that say how a file was written
_LENGTH = struct.Struct("<Q")
_TENSOR = 400  # bytes that the description of a tensor takes
_CODES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}


def read_safetensors(source: Source) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors and the metadata that a file describes.

    A tensor that is one with another has no numbers of its own: as ``safetensors.torch.save_model`` writes it, its name
    stands in the metadata, with the name of the other.

    Raises:
        CheckpointError: The header is too long, is no JSON, names a key twice, describes a tensor by a dtype that
            is not read or by a shape that is not as long as its bytes, or leaves bytes of the file out.
    """
    left = source.budget.memory
    header, start = _header(source)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{source.path} has metadata that are not texts")
    if len(header) > MAX_TENSORS:
        raise CheckpointError(f"{source.path} has {len(header)} tensors; at most {MAX_TENSORS} are read")
    spans = {key: _span(key, entry, source) for key, entry in header.items()}
    position = 0
    for begin, end in sorted(spans.values()):
        if begin != position:
            raise CheckpointError(f"{source.path} has tensors that overlap or leave a gap")
        position = end
    if start + position != source.size:
        raise CheckpointError(f"{source.path} is damaged or incomplete: its header declares {start + position} bytes")
    source.budget.memory = left  # the header is not kept
    source.budget.spend(memory=_TENSOR * len(header) + sum(map(sys.getsizeof, (*metadata, *metadata.values()))))
    tensors = {
        key: _tensor(key, header[key], Storage(source, spans[key][1] - spans[key][0], start + spans[key][0]))
        for key in header
    }
    others = {name: kept for name, kept in metadata.items() if name not in _FORMATS and name not in header}
    aliases = {name: tensors[kept] for name, kept in others.items() if kept in tensors}
    if len(tensors) + len(aliases) > MAX_TENSORS:
        raise CheckpointError(f"{source.path} has names for more than {MAX_TENSORS} tensors")
    return {**tensors, **aliases}, metadata


def _header(source: Source) -> tuple[dict[str, object], int]:
    """The header, and where the numbers begin."""
    (length,) = _LENGTH.unpack(source.bytes(0, _LENGTH.size))
    if length > MAX_HEADER:
        raise CheckpointError(f"{source.path} has a header of {length} bytes; at most {MAX_HEADER} are read")
    header = parse_json(source.bytes(_LENGTH.size, length), f"{source.path}: the header", source.budget)
    if not isinstance(header, dict):
        raise CheckpointError(f"{source.path} is damaged: its header is no JSON object")
    return header, _LENGTH.size + length


def _span(key: str, entry: object, source: Source) -> tuple[int, int]:
    """Where a tensor's bytes begin and end, counted from the end of the header."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(offset) is int for offset in offsets)):
        raise CheckpointError(f"{source.path} is damaged: it does not say where {key[:100]!r} lies")
    begin, end = offsets
    if not 0 <= begin <= end <= source.size:
        raise CheckpointError(f"{source.path} is damaged or incomplete: {key[:100]!r} lies beyond its end")
    return begin, end


def _tensor(key: str, entry: object, storage: Storage) -> StoredTensor:
    code, shape = (entry.get(part) if isinstance(entry, dict) else None for part in ("dtype", "shape"))
    if not isinstance(code, str) or code not in _CODES:
        raise CheckpointError(
            f"{storage.source.path} has {key[:100]!r} of the dtype {str(code)[:20]!r}, which is not read"
        )
    tensor = StoredTensor.of(storage, DTYPES[_CODES[code]], shape=shape)
    flaw = tensor.flaw()
    if flaw is None and tensor.numel * tensor.dtype.itemsize != storage.nbytes:
        flaw = "is not as long as its shape says"
    if flaw is not None:
        raise CheckpointError(f"{storage.source.path} is damaged: {key[:100]!r} {flaw}")
    return tensor
