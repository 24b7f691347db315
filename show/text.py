"""Makes text from files, and numbers, fit to be printed; and tables, layer names and lines of notes.

Names, reasons and versions come from files, and error messages hold them. A control character in one could move the
cursor, forge a line, or turn the direction of the rest; a text of megabytes hides everything else. So everything that
is printed, and every text in a page or a picture, goes through here: what cannot be seen is escaped as in Python, and
what is too long is shortened in its middle. Errors and JSON keep the texts as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..convert.errors import Problem


_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
LISTED = 1000  # rows of a table, or lines of one kind, that are printed; JSON holds all
LINE = 8_000  # characters of a line; an error may name a hundred layers
CELL = 400  # characters of a cell or a title
_LEFT_OUT = "..."
_SPACE = "\xa0"  # no line breaks here; our own texts use it


class Table(NamedTuple):
    """A table of texts and numbers."""

    header: tuple[str, ...]  # a text for each column
    rows: tuple[tuple[object, ...], ...]  # each has a text or a number for each column
    title: str = ""  # its heading, which documents show and terminals do not


def raised(power: int) -> str:
    """An exponent in superscript digits."""
    return str(power).translate(_RAISED)


def scientific(value: float | None) -> str:
    """A number like 9.5 x 10^-7, with cross and superscript; a dash for an unknown one."""
    if value is None:
        return "\u2013"
    if value == 0:
        return "0"
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}\u00a0\u00d7\u00a010{raised(int(exponent))}"


def printable(text: object, limit: int = LINE) -> str:
    """One line of visible characters.

    Args:
        text: The text.
        limit: Characters of it that are kept at most, before they are escaped.
    """
    shown = str(text)
    if len(shown) > limit:
        half = limit // 2
        shown = shown[:half] + _LEFT_OUT + shown[len(shown) - half :]
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c == _SPACE else c.encode("unicode_escape").decode() for c in shown)


def printable_lines(text: object) -> str:
    """Lines of visible characters, for a text whose line breaks are ours."""
    return "\n".join(printable(line) for line in str(text).split("\n"))


LONGEST_NAME = 60  # characters of a name that a table shows
_LISTED = 10  # names in a line


def short_name(name: str) -> str:
    """Shortens a name in the middle to at most ``LONGEST_NAME`` characters."""
    if len(name) <= LONGEST_NAME:
        return name
    end = LONGEST_NAME // 2
    return name[: LONGEST_NAME - end - 1] + "\u2026" + name[-end:]


def layer_name(name: str) -> str:
    """A layer's name; the model itself has an empty one."""
    return name or "the model itself"


def note_lines(notes: Iterable[tuple[str, str | None]]) -> list[str]:
    """Formats notes about layers: one line for each note, with the names of its layers."""
    layers = by_note((layer_name(name), note) for name, note in notes)
    return _first([f"note: {_listed(names)}: {note}" for note, names in layers.items()])


def by_note(notes: Iterable[tuple[str, str | None]]) -> dict[str, list[str]]:
    """The notes, each with the names that it is about."""
    found: dict[str, list[str]] = {}
    for name, note in notes:
        if note is not None:
            found.setdefault(note, []).append(name)
    return found


def non_finite_lines(names: Sequence[str]) -> list[str]:
    """A warning for tensors that hold a NaN or an infinity."""
    return [f"warning: NaN or infinity in {_listed(names)}; these layers are not certified"] if names else []


def partial_lines(path: object, loaded: int, names: Sequence[str]) -> list[str]:
    """A warning that a network takes a part of a checkpoint only.

    Args:
        path: The checkpoint.
        loaded: Number of its keys that the network takes.
        names: The others.
    """
    if not names:
        return []
    counts = f"{loaded:,} of {loaded + len(names):,} keys are loaded, missing 0, left over {len(names):,}"
    return [f"warning: the network is a part of {path}: {counts}: {_listed(names)}"]


def dequantised_lines(names: Sequence[str]) -> list[str]:
    """Formats a line about tensors that a checkpoint stores as integers."""
    return [f"Dequantised, (integer - zero point) * scale: {_listed(names)}"] if names else []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def problem_lines(what: str, problems: Sequence[Problem]) -> list[str]:
    """Formats a count of problems, then each layer with its reason; no lines if there are none."""
    if not problems:
        return []
    lines = [f"  {layer_name(problem.name)}: {problem.reason}" for problem in problems]
    return [f"{len(problems)} {what}:", *_first(lines)]


def _first(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - LISTED:,} more such lines; --json prints all"] if len(lines) > LISTED else []
    return lines[:LISTED] + more
