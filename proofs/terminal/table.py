"""A table, as data."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """A table of texts and numbers.

    Attributes:
        header: A text for each column.
        rows: A text or a number for each column, each.
        title: What it is about; a document shows it as a heading, a terminal does not.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""
