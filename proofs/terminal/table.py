"""A table, as data."""

from __future__ import annotations

from typing import NamedTuple

LISTED = 1000  # rows of a table, or lines of one kind, that are printed; JSON holds all


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
