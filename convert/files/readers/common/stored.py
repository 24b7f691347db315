"""Tensors as files describe them, and as they are read: mapped into memory, not copied.

Every reader ends here. It says where a tensor's numbers lie in the file, and in which shape; that is checked
against what the file holds, in integers that cannot overflow, before a tensor exists.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from ....errors import CheckpointError
from .limits import MAX_DIMENSIONS, Budget

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
        *(torch.int64, torch.int32, torch.int16, torch.int8),
        *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
        *(torch.complex128, torch.complex64, torch.bool),
    )
}
"""The dtypes that are read: those of dense, plain numbers."""


class Source:
    """A file's bytes, mapped into memory.

    Changes to tensors made from it stay in memory; the file must not be cut while they are in use.

    Args:
        path: The file.
        budget: What reading the checkpoint that it belongs to may take; by default it is the only file of one.

    Attributes:
        path: The file.
        budget: What reading the checkpoint may still take.
        size: The file's length in bytes.
        content: Its bytes, read as they are touched.
    """

    def __init__(self, path: Path, budget: Budget | None = None) -> None:
        self.path = path
        self.budget = Budget() if budget is None else budget
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if self.size else mmap.mmap(-1, 1)
        self.budget.add_file(self.size)
        self._runs: dict[tuple[int, int], Storage] = {}

    def run(self, start: int, length: int) -> Storage:
        """The numbers at a place that a file gives; one object for one place, so that tensors share them."""
        return self._runs.setdefault((start, length), Storage(self, length, start))

    def bytes(self, start: int, length: int) -> bytes:
        """A copy of some bytes.

        Raises:
            CheckpointError: They lie outside the file.
        """
        if not (start >= 0 and length >= 0 and start + length <= self.size):
            raise CheckpointError(f"{self.path} is damaged or incomplete: it ends before what it declares")
        return self.content[start : start + length]


@dataclass(slots=True, eq=False)
class Storage:
    """A run of numbers in a file, which tensors may share.

    Attributes:
        source: The file.
        nbytes: Its length.
        start: Where it begins; None until that is known.
        copy: Its bytes, where they had to be copied.
    """

    source: Source
    nbytes: int
    start: int | None = None
    copy: Tensor | None = None

    @property
    def is_in_file(self) -> bool:
        """Whether the file has all of its bytes."""
        return self.start is not None and self.start + self.nbytes <= self.source.size

    def numbers(self, dtype: torch.dtype, first: int, count: int) -> Tensor:
        """Some of its numbers: over the mapped file, or over one copy of them all if they are not aligned there."""
        start, (source, size) = self.start or 0, (self.source, dtype.itemsize)
        if start % size == 0:
            return torch.frombuffer(source.content, dtype=dtype, count=count, offset=start + first * size)
        if self.copy is None:
            source.budget.spend(memory=self.nbytes)
            self.copy = torch.frombuffer(source.content, dtype=torch.uint8, count=self.nbytes, offset=start).clone()
        return self.copy[first * size : (first + count) * size].view(dtype)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that a file describes.

    Attributes:
        storage: Where its numbers lie.
        dtype: Their kind.
        shape: Sizes of its dimensions.
        stride: Numbers between neighbours along each dimension; None if the numbers follow each other.
        first: Number of the storage at which the tensor begins.
    """

    storage: Storage
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    first: int = 0

    @classmethod
    def of(
        cls, storage: Storage, dtype: torch.dtype, *, shape: object, stride: object = None, first: object = 0
    ) -> Self:
        """Describes a tensor by values that a file gives.

        Raises:
            CheckpointError: The values are not of the kinds that describe a tensor.
        """
        sizes, (begin,) = _sizes(shape), _sizes((first,))
        steps = None if stride is None else _sizes(stride)
        if steps is not None and len(steps) != len(sizes):
            raise CheckpointError("a tensor has another number of strides than of sizes")
        return cls(storage, dtype, sizes, steps, begin)

    @property
    def numel(self) -> int:
        """How many numbers the tensor has."""
        return math.prod(self.shape)

    def flaw(self) -> str | None:
        """What keeps the tensor from lying in its storage, if anything."""
        if math.prod(max(size, 1) for size in self.shape) * self.dtype.itemsize >= 2**63:
            return "has a shape that no memory holds"
        if self.numel * self.dtype.itemsize > self.storage.nbytes:
            return f"has {self.numel} numbers, but its storage has only {self.storage.nbytes} bytes"
        if self.numel and (self._last + 1) * self.dtype.itemsize > self.storage.nbytes:
            return "reaches beyond the end of its storage"
        return None if self.storage.is_in_file else "lies beyond the end of the file"

    def read(self) -> Tensor:
        """The tensor, over its storage's numbers.

        Raises:
            CheckpointError: It does not lie in its storage.
        """
        if (flaw := self.flaw()) is not None:
            raise CheckpointError(f"a tensor {flaw}")
        if not self.numel:
            return torch.empty(self.shape, dtype=self.dtype, device="cpu")
        flat = self.storage.numbers(self.dtype, self.first, self._last + 1 - self.first)
        return flat.view(self.shape) if self.stride is None else flat.as_strided(self.shape, self.stride)

    @property
    def _last(self) -> int:
        """Number of the storage that the tensor's last element is."""
        if self.stride is None:
            return self.first + self.numel - 1
        return self.first + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(frozen=True, slots=True)
class OddTensor:
    """A tensor that is not dense, plain numbers.

    Attributes:
        kind: What it is instead.
    """

    kind: str


def _sizes(values: object) -> tuple[int, ...]:
    """The integers of a list or a tuple, if it is not long and none is negative."""
    if isinstance(values, list | tuple) and len(values) > MAX_DIMENSIONS:  # before they are copied: many may share it
        raise CheckpointError(f"a tensor has {len(values)} dimensions; at most {MAX_DIMENSIONS} are read")
    if not isinstance(values, list | tuple) or not all(type(value) is int and 0 <= value < 2**63 for value in values):
        raise CheckpointError("a shape, stride or offset is not a list of non-negative integers")
    return tuple(values)
