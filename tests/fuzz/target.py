"""What the fuzzer calls: one input, read as each kind of file, loads or is refused.

The first byte of an input says how it is written, and whether moving averages are wanted, so that a mutation of a
pickle or of a header need not get a zip archive's directory or a length right as well.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.files.checkpoint import non_finite_keys, read_checkpoint
from conv2attn.convert.files.layers import layer_tree

SECONDS = 5.0
STORAGE = bytes(range(256)) * 2
_FOLDER = Path(tempfile.gettempdir(), f"conv2attn-fuzz-{os.getpid()}")


def write_shards(folder: Path) -> None:
    """The two files that an index can name."""
    folder.mkdir()
    safetensors.torch.save_file({"w": torch.ones(2, 3), "0.weight": torch.ones(2, 3, 1, 1)}, folder / "a.safetensors")
    torch.save({"w": torch.ones(2, 3), "0.weight": torch.ones(2, 3, 1, 1)}, folder / "b.bin")


def _zip(entries: dict[str, bytes], path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(f"a/{name}", content)


def write_raw(data: bytes, path: Path) -> None:
    """The bytes as they are."""
    path.write_bytes(data)


def write_pickle(data: bytes, path: Path) -> None:
    """A pickle in an archive that has three storages."""
    _zip({"data.pkl": data, **{f"data/{key}": STORAGE for key in "012"}}, path)


def write_safetensors(data: bytes, path: Path) -> None:
    """A header, with its length before it and numbers behind it."""
    path.write_bytes(struct.pack("<Q", len(data)) + data + STORAGE)


def write_exported(data: bytes, path: Path) -> None:
    """The two JSON texts of an exported program, with a zero byte between them, and two weights."""
    config, _, graph = data.partition(b"\0")
    weights = {f"data/weights/weight_{number}": STORAGE for number in range(10)}
    _zip({"data/weights/model_weights_config.json": config, "models/model.json": graph, **weights}, path)


WRITERS: tuple[Callable[[bytes, Path], None], ...] = (write_raw, write_pickle, write_safetensors, write_exported)

# How an input of a kind is written, and what its content begins with.
KINDS: dict[str, tuple[Callable[[bytes, Path], None], bytes]] = {
    "zip": (write_raw, b"PK\3\4"),
    "pickle": (write_pickle, b""),
    "legacy": (write_raw, b"\x80\x02"),
    "safetensors": (write_safetensors, b"{"),
    "index": (write_raw, b"{"),
    "exported": (write_exported, b"{"),
    "onnx": (write_raw, b"\x08\x0e\x3a"),
}


def as_kind(kind: str, data: bytes) -> bytes:
    """An input made one of a kind: its first bytes are the kind's."""
    writer, start = KINDS[kind]
    asked = data[0] & 128 if data else 0
    return bytes([asked + WRITERS.index(writer)]) + start + data[1 + len(start) :]


def one_input(data: bytes) -> None:
    """Reads an input; every number of every tensor that it yields is looked at.

    Raises:
        AssertionError: It took more than ``SECONDS`` of processor time.
        Exception: It was neither read nor refused.
    """
    if not data:
        return
    if not _FOLDER.exists():
        write_shards(_FOLDER)
    path = _FOLDER / "input"
    WRITERS[data[0] % len(WRITERS)](data[1:], path)
    start = time.process_time()  # of this process alone: the machine may be busy
    try:
        checkpoint = read_checkpoint(path, ema=data[0] >= 128)
        non_finite_keys(checkpoint.state_dict)
        layer_tree(checkpoint.convolutions, checkpoint.state_dict)
    except ConversionError:
        pass
    assert time.process_time() - start < SECONDS
