"""Archives of the form of CIFAR-10's with few images, as Python 2 and today's Python pickle them."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
Batch = tuple[npt.NDArray[np.uint8], list[int]]


def batches(count: int = 20, *, seed: int = 0) -> dict[str, Batch]:
    """Random images [count, 3072] and labels, of every class alike, for each batch."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.integers(0, 256, (count, 3072), dtype=np.uint8), [int(label) for label in np.arange(count) % 10])
        for name in BATCHES
    }


def as_python_2(images: npt.NDArray[np.uint8], labels: list[int]) -> bytes:
    """The opcodes that Python 2 wrote: every text is a string of bytes, and NumPy's old names are used."""

    def text(content: bytes) -> bytes:
        short = len(content) < 256
        return (b"U" + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content))) + content

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    shape = b"".join(map(number, images.shape)) + b"\x86"
    array = made + b"(" + number(1) + shape + dtype + b"\x89" + text(images.tobytes()) + b"tb"
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return (
        b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + text(b"batch_label") + text(b"one") + b"u."
    )


def as_today(images: npt.NDArray[np.uint8], labels: list[int]) -> bytes:
    """What ``pickle`` writes now."""
    return pickle.dumps({"data": images, "labels": labels}, protocol=4)


def write_archive(path: Path, files: Mapping[str, bytes]) -> Path:
    """Packs files."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
