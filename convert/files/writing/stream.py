"""Lets torch write a file in such a way that a full disk is an ``OSError``.

Given a path, torch's writer ends the whole process when the disk is full, or raises an error that does not say so;
given a stream that fails, likewise. So it gets a stream that never fails, but remembers what the file system said.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast


def write_stream(save: Callable[[IO[bytes]], object], path: Path) -> None:
    """Writes a file by a function that writes to a stream, as ``torch.save`` does.

    Args:
        save: Called with the stream to write to.
        path: The file.

    Raises:
        OSError: The file system failed.
    """
    with _Remembering(path, "wb") as stream:
        save(cast(IO[bytes], stream))
        if stream.error is not None:
            raise stream.error


class _Remembering(io.FileIO):
    """A file that takes everything, and keeps the first error; from then on it writes nothing."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes all of the data, and never less."""
        rest = whole = memoryview(data).cast("B")
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return len(whole)
