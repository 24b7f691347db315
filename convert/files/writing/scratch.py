"""Folders for what is needed for a moment, which signals that end a run do not leave behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .uninterrupted import uninterrupted


@contextmanager
def scratch_folder(prefix: str = "conv2attn-", *, inside: Path | None = None) -> Iterator[Path]:
    """An empty folder that is removed, with all that is in it, when the context is left.

    A signal that comes while it is made or removed is heard after that: the second of two, of which the first ended
    the run, among them.

    Args:
        prefix: How its name begins.
        inside: Where it is; by default where the system keeps such folders.
    """
    with (
        uninterrupted() as interruptible,
        tempfile.TemporaryDirectory(prefix=prefix, dir=inside) as name,
        interruptible(),
    ):
        yield Path(name)
