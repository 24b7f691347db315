"""CIFAR-10, from the archives in which its authors give it, packed or unpacked; nothing in them is run.

    cifar-10-python.tar.gz    cifar-10-batches-py/data_batch_1 ... 5, test_batch: pickles of a dictionary each
    cifar-10-binary.tar.gz    cifar-10-batches-bin/data_batch_1.bin ... 5.bin, test_batch.bin: 1 + 3072 bytes an image

An image is 32 x 32 pixels: its red values row by row, then its green, then its blue. (A. Krizhevsky, Learning Multiple
Layers of Features from Tiny Images, 2009.)
"""

from __future__ import annotations

import importlib
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from ...convert.errors import CheckpointError
from .images import ImageData, Split, divided
from .pickled_batch import read_pickled_batch

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")  # the last is the test set
SHAPE = 3, 32, 32
_NUMBERS = 3 * 32 * 32
_LARGEST = 2**26  # bytes of a batch; the real ones have 31 million
_MOST_BYTES = 2**29  # of an archive, unpacked; the real ones have 190 million
_MOST_HEADERS = 2**20  # bytes of an archive's headers; the real ones have 10,000
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ": "lzma",
    b"]\0\0": "lzma",
}  # how files begin that these modules unpack
_SHARE, _SEED = 0.1, 0  # validation images, of those to learn from

Read = Callable[[bytes, str], tuple[torch.Tensor, torch.Tensor]]


def cifar10(path: Path) -> ImageData:
    """CIFAR-10: its test set, and of its other images 90 % to learn from and 10 % to choose.

    Args:
        path: One of the archives, or a folder with what one holds, or its parent.

    Raises:
        CheckpointError: The file or folder is missing, is something else, lacks a batch, or holds a damaged one.
    """
    batches = [_split(name, content, read) for name, content, read in _contents(path)]
    known = Split(torch.cat([one.images for one in batches[:-1]]), torch.cat([one.labels for one in batches[:-1]]))
    validation, train = divided(known, shares=(_SHARE,), seed=_SEED)
    return ImageData("cifar10", CLASSES, train, validation, batches[-1], flips=True)


def _split(name: str, content: bytes, read: Read) -> Split:
    images, labels = read(content, name)
    if len(images) == 0 or len(images) != len(labels) or not bool(((labels >= 0) & (labels < len(CLASSES))).all()):
        raise CheckpointError(f"{name} holds {len(images)} images and {len(labels)} labels, which must be 0 to 9")
    return Split(images.view(-1, *SHAPE), labels)


def _read_binary(content: bytes, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    if not content or len(content) % (1 + _NUMBERS):
        raise CheckpointError(f"{name} is cut short: its {len(content)} bytes are not images of {1 + _NUMBERS} each")
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 1 + _NUMBERS)
    return rows[:, 1:].contiguous(), rows[:, 0].long()


def _read_pickled(content: bytes, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return read_pickled_batch(content, name, numbers=_NUMBERS)


_FORMS: dict[str, tuple[str, Read]] = {
    "cifar-10-batches-py": ("", _read_pickled),
    "cifar-10-batches-bin": (".bin", _read_binary),
}


def _contents(path: Path) -> Iterator[tuple[str, bytes, Read]]:
    """The batches in their order: where each lies, its bytes, and what reads them."""
    with _files(path) as files:
        for folder, (ending, read) in _FORMS.items():
            names = [f"{folder}/{batch}{ending}" for batch in BATCHES]
            present = [name for name in names if name in files]
            if not present:
                continue
            if lacking := [name for name in names if name not in files]:
                raise CheckpointError(f"{path} lacks {', '.join(lacking)}")
            yield from ((f"{name} in {path}", files[name](), read) for name in names)
            return
    wanted = " or ".join(f"{folder}/{BATCHES[0]}{ending}" for folder, (ending, _) in _FORMS.items())
    raise CheckpointError(f"{path} is not CIFAR-10: it holds no {wanted}")


@contextmanager
def _files(path: Path) -> Iterator[dict[str, Callable[[], bytes]]]:
    """The files of an archive or a folder, by the last two parts of their names, each to be read when it is wanted."""
    try:
        if path.is_dir():
            near = [*path.glob("*/*"), *(path.resolve() / entry.name for entry in path.iterdir())]
            yield {f"{file.parent.name}/{file.name}": partial(_read_file, file) for file in near if file.is_file()}
        else:
            with _opened(path) as stream:
                found = _entries(stream, path)
                yield {_last_two(entry.name): partial(_read_entry, stream, entry) for entry in found}
    except CheckpointError:
        raise
    except Exception as error:  # a damaged archive makes tarfile and the modules that unpack raise anything
        reason = getattr(error, "strerror", None) or "it is no archive of tar, or is damaged"
        raise CheckpointError(f"{path} cannot be read: {reason}") from error


def _opened(path: Path) -> IO[bytes]:
    """The bytes of an archive, unpacked as they are read."""
    with path.open("rb") as file:
        head = file.read(max(map(len, _PACKED)))
    name = next((name for start, name in _PACKED.items() if head.startswith(start)), None)
    stream: IO[bytes] = path.open("rb") if name is None else importlib.import_module(name).open(path, "rb")
    return stream


class _Headers:
    """What ``tarfile`` reads an archive through: headers, of which there are few, and nothing of what they describe.

    A header may say that a name, or whatever else describes a file, is as long as it likes, and tarfile reads it whole.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path, self._left = stream, path, _MOST_HEADERS

    def read(self, size: int) -> bytes:
        self._left -= size
        if size < 0 or self._left < 0:
            raise CheckpointError(f"{self._path} is not CIFAR-10: its headers are far longer")
        return self._stream.read(size)

    def seek(self, position: int) -> None:
        if position > _MOST_BYTES:
            raise CheckpointError(f"{self._path} is not CIFAR-10: it unpacks to far more")
        self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


def _entries(stream: IO[bytes], path: Path) -> Iterator[tarfile.TarInfo]:
    """The plain files in an archive, which must not unpack to more than any of CIFAR-10 does."""
    headers: Any = _Headers(stream, path)
    with tarfile.open(fileobj=headers, mode="r:") as archive:
        for entry in archive:
            if not 0 <= entry.size <= _LARGEST:
                raise CheckpointError(f"{path} is not CIFAR-10: it unpacks to far more")
            if entry.isreg() and not entry.issparse():
                yield entry


def _read_entry(stream: IO[bytes], entry: tarfile.TarInfo) -> bytes:
    stream.seek(entry.offset_data)
    return stream.read(entry.size)


def _read_file(path: Path) -> bytes:
    if path.stat().st_size > _LARGEST:
        raise CheckpointError(f"{path} is not a batch of CIFAR-10: it is far larger")
    return path.read_bytes()


def _last_two(name: str) -> str:
    return "/".join(name.split("/")[-2:])
