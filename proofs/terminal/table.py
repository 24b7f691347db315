"""Table of texts and numbers."""

from __future__ import annotations

from typing import NamedTuple

LISTED = 1000  # rows of a table, or lines of one kind, that are printed; JSON holds all


class Table(NamedTuple):
    """A table of texts and numbers.

    Attributes:
        header: A text for each column.
        rows: Each has a text or a number for each column.
        title: Its heading, which documents show and terminals do not.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""
