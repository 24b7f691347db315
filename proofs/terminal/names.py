"""Layer names, and lines of notes, warnings and problems about layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .output import LISTED

if TYPE_CHECKING:
    from ...convert.errors import Problem

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


def dequantised_lines(names: Sequence[str]) -> list[str]:
    """Formats a line about tensors that a checkpoint stores as integers."""
    return [f"Dequantised, (integer - zero point) * scale: {_listed(names)}"] if names else []


def extra_lines(names: Sequence[str]) -> list[str]:
    """Formats a line about checkpoint keys that were left out."""
    return [f"Left out, since no part of the network has them: {_listed(names)}"] if names else []


def _listed(names: Sequence[str]) -> str:
    """The first names, and the number of others."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def problem_lines(what: str, problems: Sequence[Problem]) -> list[str]:
    """Formats a count of problems, then each layer with its reason; no lines if there are none."""
    if not problems:
        return []
    lines = [f"  {layer_name(problem.name)}: {problem.reason}" for problem in problems]
    return [f"{len(problems)} {what}:", *_first(lines)]


def _first(lines: list[str]) -> list[str]:
    """The first ``LISTED`` lines, and the number of others."""
    more = [f"and {len(lines) - LISTED:,} more such lines; --json prints all"] if len(lines) > LISTED else []
    return lines[:LISTED] + more
