"""Checks the numbers, sizes and images that callers pass; and ``Size``, the size of a grid of pixels.

Raises:
    ConversionError: By every function here, for a value of another kind; the message says what was wanted and got.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .errors import ConversionError, MemoryLimitError

if TYPE_CHECKING:  # the command line's options are checked by this module before torch is imported
    from torch import Tensor


class Size(tuple[int, ...]):
    """Pixels along each axis of a grid; of an image the rows, then the columns."""

    def __new__(cls, *lengths: int) -> Self:
        """Takes one length for each axis."""
        return super().__new__(cls, lengths)

    def __getnewargs__(self) -> tuple[int, ...]:
        """Returns the arguments that a copy or an unpickled size is made of."""
        return tuple(self)

    @property
    def rows(self) -> int:
        """Height of an image."""
        return self[-2]

    @property
    def columns(self) -> int:
        """Width of an image."""
        return self[-1]

    def along(self, axes: int) -> Size:
        """The size of a grid with so many axes: one length alone is that of every axis."""
        return Size(*self * axes) if len(self) == 1 else self

    def __str__(self) -> str:
        return "x".join(map(str, self))


# What networks usually take, where nobody says: a second of sound, an image, a short film.
USUAL_SIZES = {1: Size(16_000), 2: Size(224, 224), 3: Size(16, 112, 112)}


def format_bytes(count: float) -> str:
    """A number of bytes as people read it: 84.2 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


_GROUP_LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"  # of a container, or a job


def machine_memory() -> float:
    """Bytes of memory that this process may have at most: the machine's, or its control group's; inf if not known."""
    found = [math.inf]
    with suppress(AttributeError, ValueError, OSError):  # no POSIX
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _GROUP_LIMITS:
        with suppress(OSError, ValueError):  # it has none, or says "max"
            found.append(int(Path(path).read_text()))
    return min(found)


def check_memory(least: float, what: str) -> None:
    """Refuses what takes more memory than there is, before it is asked for: a system may give it, and end the process.

    Args:
        least: An estimate from below, in bytes.
        what: What takes it, as the beginning of the sentence.

    Raises:
        MemoryLimitError: This machine has less.
    """
    limit = machine_memory()
    if least > limit:
        raise MemoryLimitError(f"{what} takes {format_bytes(least)} at least; this machine has {format_bytes(limit)}")


def format_seconds(seconds: float) -> str:
    """A time as people read it: 40 seconds, 12 minutes, 3 hours."""
    for unit, length in (("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 1.5 * length:
            return f"{round(seconds / length)} {unit}s"
    count = max(1, round(seconds))
    return f"{count} second{'s' * (count != 1)}"


_MOST = 2**31 - 1  # more than a size, a dimension or a number of heads ever is


def as_integer(value: Any, name: str, *, least: int, most: int = _MOST) -> int:
    """A whole number, of any integer type, from ``least`` to ``most``: by default, what a tensor could have."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ConversionError(f"{name} must be an integer; got {_shown(value)}") from error
    if isinstance(value, bool) or not least <= number <= most:
        raise ConversionError(f"{name} must be an integer from {least} to {most}; got {_shown(value)}")
    return number


_AXES = {1: ("length",), 2: ("rows", "columns"), 3: ("planes", "rows", "columns")}
_COUNTS = {
    1: "one integer, the length",
    2: "two integers, rows and columns",
    3: "three integers, planes, rows and columns",
}


def as_size(value: Any, axes: int = 2) -> Size:
    """The size of a grid; of an image, which has two axes, rows and columns. Ones before it are left out."""
    names = _AXES[axes]
    try:
        lengths = tuple(value)
    except TypeError as error:
        raise ConversionError(f"size must be {_COUNTS[axes]}; got {_shown(value)}") from error
    while len(lengths) > axes and lengths[0] == 1 and not isinstance(value, str):
        lengths = lengths[1:]
    if isinstance(value, str) or len(lengths) != axes:
        raise ConversionError(f"size must be {_COUNTS[axes]}; got {_shown(value)}")
    return Size(*(as_integer(n, f"size's {name}", least=1) for n, name in zip(lengths, names, strict=True)))


def as_number(value: Any, name: str) -> float:
    """A real number, as Python or numpy have it."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ConversionError(f"{name} must be a number; got {_shown(value)}")
    return float(value)


def as_tolerance(value: Any) -> float | None:
    """A tolerance that is not negative, or None."""
    if value is None:
        return None
    number = as_number(value, "tolerance")
    if not number >= 0:
        raise ConversionError(f"tolerance must be a number that is not negative; got {number}")
    return number


def as_heads(heads: Any, num_heads: int) -> list[int]:
    """Numbers of heads; None means all."""
    if heads is None:
        return list(range(num_heads))
    numbers = [as_integer(head, "a head", least=0) for head in _listed(heads, "heads", "numbers of heads: [3], not 3")]
    if not all(head < num_heads for head in numbers):
        raise ConversionError(f"heads are numbered 0 to {num_heads - 1}; got {numbers}")
    return numbers


def as_queries(queries: Any, output: Size) -> list[int]:
    """Numbers of output pixels, row by row, of pixels (row, column); None means all."""
    if queries is None:
        return list(range(math.prod(output)))
    example = tuple(range(2, 2 + len(output)))
    words = {1: "(position,)", 2: "(row, column)", 3: "(plane, row, column)"}[len(output)]
    wanted = f"pixels {words}: [{example}], not {example}"
    found = []
    for pixel in _listed(queries, "queries", wanted):
        point = _listed(pixel, "queries", wanted)
        if len(point) != len(output):
            raise ConversionError(f"queries must be {wanted}; got {_shown(queries)}")
        coordinates = tuple(as_integer(number, "a query's row or column", least=0) for number in point)
        if any(coordinate >= length for coordinate, length in zip(coordinates, output, strict=True)):
            raise ConversionError(f"queries must be pixels of the output, {output} for this size; got {coordinates}")
        number = 0
        for coordinate, length in zip(coordinates, output, strict=True):
            number = number * length + coordinate
        found.append(number)
    return found


def image_batches(batches: Any) -> Iterator[Tensor]:
    """The images of each batch: a tensor, or the first of a pair (images, labels) as a ``DataLoader`` gives it.

    Args:
        batches: Any iterable; a tensor counts as its parts along the first dimension.
    """
    from torch import Tensor

    if not isinstance(batches, Iterable) or _is_scalar(batches):
        raise ConversionError(f"batches must be an iterable of tensors; got {_shown(batches)}")
    for batch in batches:
        images = batch[0] if isinstance(batch, Sequence) and not isinstance(batch, str) and batch else batch
        if not isinstance(images, Tensor):
            raise ConversionError(
                f"each batch must be a tensor of images, or a tuple or list that starts with one; got {_shown(batch)}"
            )
        yield images


def as_tensor(value: Any, name: str) -> Tensor:
    """A ``torch.Tensor``."""
    from torch import Tensor

    if not isinstance(value, Tensor):
        hint = ": torch.as_tensor makes one" if hasattr(value, "__array__") else ""
        raise ConversionError(f"{name} must be a torch.Tensor; got {_shown(value)}{hint}")
    return value


def as_path(value: Any, name: str) -> Path:
    """The path of a file or folder."""
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise ConversionError(f"{name} must be a path; got {_shown(value)}")
    return Path(value)


def as_range_end(value: Any) -> Tensor:
    """One end of an input range: a number, or numbers, one a channel; [1] or [channels], in double precision."""
    import torch

    try:
        return torch.as_tensor(value, dtype=torch.float64, device="cpu").detach().flatten()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConversionError(f"input_range must be (low, high), numbers; got {_shown(value)}") from error


def _listed(values: Any, name: str, wanted: str) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable) or _is_scalar(values):
        raise ConversionError(f"{name} must be {wanted}; got {_shown(values)}")
    return list(values)


def _is_scalar(value: Any) -> bool:
    """Whether a value is a tensor or array without axes, which says that it can be iterated over."""
    return getattr(value, "ndim", None) == 0


def _shown(value: Any) -> str:
    """A value as an error names it: short ones as they are, others by their type."""
    text = repr(value) if isinstance(value, (numbers.Number, str, tuple, list, type(None))) else ""
    return text if 0 < len(text) <= 60 else type(value).__name__
