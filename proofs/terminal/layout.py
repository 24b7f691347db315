"""How a table fits into a width: long names shortened in their middle, columns narrowed, or each row as a block.

Everything here is pure: texts and numbers in, texts and numbers out. ``output.py`` prints.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_NAME = 60  # characters of a name that a table shows
_NARROWEST_NAME = 12  # the first column may be folded to this, the others at spaces only
_LEFT_OUT = "\u2026"


def short_names(names: Sequence[str], limit: int = LONGEST_NAME) -> list[str]:
    """Names with at most so many characters, shortened in the middle; different names stay different.

    Args:
        names: The names; the same one may come several times.
        limit: Characters that a name may have.
    """
    shortened = {name: short_name(name, limit) for name in names}
    owners: dict[str, set[str]] = {}
    for name, short in shortened.items():
        owners.setdefault(short, set()).add(name)
    return [shortened[name] if len(owners[shortened[name]]) == 1 else name for name in names]


def short_name(name: str, limit: int = LONGEST_NAME) -> str:
    """A name with at most so many characters, shortened in its middle."""
    if len(name) <= limit:
        return name
    end = limit // 2
    return name[: limit - end - 1] + _LEFT_OUT + name[len(name) - end :]


def column_widths(columns: Sequence[Sequence[str]], width: int | None = None) -> list[int] | None:
    """Widths of a table's columns within a total width, or None if they do not fit.

    Only the first column, of names, is folded within a word. The widest columns give way first.

    Args:
        columns: The texts of each column, its head included.
        width: What all of them together may take; None means as much as they need.
    """
    from rich.cells import cell_len  # letters of some scripts take two places

    widths = [max(map(cell_len, texts)) for texts in columns]
    least = [max(cell_len(word) for text in texts for word in text.split(" ")) for texts in columns]
    least[0] = min(least[0], _NARROWEST_NAME)
    if width is None:
        return widths
    if sum(least) > width:
        return None
    while sum(widths) > width:
        wide = [index for index in range(len(widths)) if widths[index] > least[index]]
        widths[max(wide, key=lambda index: widths[index])] -= 1
    return widths


def blocks(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines: for each row its first cell, and below it the others, each with its head."""
    lines = []
    for first, *others in rows:
        lines += [first, *(f"  {head}: {cell}" for head, cell in zip(header[1:], others, strict=True)), ""]
    return lines
