"""A table, as data."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """A table of texts and numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
