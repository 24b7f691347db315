"""The size of a grid of pixels, and of what it takes."""

from __future__ import annotations

from typing import Self


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
