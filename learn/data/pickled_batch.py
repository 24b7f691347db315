"""A batch of CIFAR-10 in the form of Python's pickle, read by the machine that runs nothing.

The dictionary in it holds an array of bytes, "data", and a list of numbers, "labels". The machine passes over long
texts; the one that is wanted here, the array's bytes, is kept beside it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from ...convert.errors import CheckpointError
from ...convert.files.readers.common.limits import MAX_NAME, Budget
from ...convert.files.readers.common.stored import Source
from ...convert.files.readers.pickle_machine import Name, PickleMachine, StandIn, Stream


class _Bytes(Stream):
    """A stream that keeps its long texts, which the machine passes over."""

    def __init__(self, content: bytes, budget: Budget) -> None:
        super().__init__(cast(Source, SimpleNamespace(content=content, budget=budget)), 0, len(content))
        self.long: list[bytes] = []

    def _take(self, end: int) -> bytes:
        if end - self.position > MAX_NAME:
            self.long.append(self._content[self.position : end])
        return super()._take(end)


def read_pickled_batch(content: bytes, name: str, *, numbers: int) -> tuple[Tensor, Tensor]:
    """Images [count, numbers] of uint8 and labels [count].

    Args:
        content: The pickle.
        name: What errors call it.
        numbers: Of an image.

    Raises:
        CheckpointError: It is damaged, or no batch of images.
    """
    budget = Budget()
    budget.add_file(len(content))
    stream = _Bytes(content, budget)
    machine = PickleMachine(persistent=lambda _: None, call=_stand_in, budget=budget)
    try:
        batch = machine.run(stream)
    except CheckpointError as error:
        raise CheckpointError(f"{name} is not a batch of CIFAR-10: {error}") from error
    except Exception as error:  # of any kind, for a damaged pickle
        raise CheckpointError(f"{name} is cut short or damaged") from error
    data, labels = (batch.get("data"), batch.get("labels")) if isinstance(batch, dict) else (None, None)
    rows = _rows(data, stream.long, numbers)
    if rows is None or not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise CheckpointError(f"{name} is not a batch of CIFAR-10: it holds no array of bytes with a list of labels")
    return rows, torch.tensor(labels, dtype=torch.int64)


def _stand_in(function: Name, arguments: tuple[object, ...]) -> StandIn:
    return StandIn(function.path, arguments)


def _rows(array: Any, long: list[bytes], numbers: int) -> Tensor | None:
    """The array, if it is one of unsigned bytes, [count, numbers], in C's order, whose bytes are the one long text.

    NumPy pickles an array as a call of ``_reconstruct``, then its state (version, shape, dtype, is Fortran's, bytes).
    """
    state = array.state if isinstance(array, StandIn) and array.kind.endswith(".multiarray._reconstruct") else None
    if not (isinstance(state, tuple) and len(state) == 5 and len(long) == 1):
        return None
    _, shape, dtype, is_fortran, _ = state
    is_bytes = isinstance(dtype, StandIn) and dtype.kind == "numpy.dtype"
    if not is_bytes or is_fortran is not False or shape != (len(long[0]) // numbers, numbers):
        return None
    return (
        torch.frombuffer(bytearray(long[0]), dtype=torch.uint8).view(shape)
        if len(long[0]) == shape[0] * numbers
        else None
    )
