"""Outcomes of commands, and printing them: as text for people or as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .output import Table, print_table, say, say_document

JSON_VERSION = 1


class Outcome(Protocol):
    """Result of a command."""

    @property
    def exit_code(self) -> int:
        """Exit code of the program: 0 unless a check failed."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        ...

    def shown(self) -> Iterable[Table | str]:
        """Tables and lines, in the order in which they are read."""
        ...


@dataclass(frozen=True)
class Done:
    """Outcome of a command that did its work and checked nothing."""

    data: Mapping[str, Any]
    parts: Iterable[Table | str]  # tables and lines, in the order in which they are read
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return dict(self.data)

    def shown(self) -> Iterable[Table | str]:
        """Tables and lines, in the order in which they are read."""
        return self.parts


def wrote(file: Path, told: str = "", /, **about: Any) -> Done:
    """Outcome of a command that wrote a file: what is told of its content, if anything, and other facts for JSON."""
    return Done({"file": str(file), **about}, [f"Wrote {file}: {told}" if told else f"Wrote {file}"])


def print_outcome(command: str, outcome: Outcome, *, as_json: bool) -> None:
    """Prints the outcome of a command as tables and lines, or as one JSON object that names the command."""
    if as_json:
        say_document(outcome_json(command, outcome))
        return
    for part in outcome.shown():
        if isinstance(part, Table):
            print_table(part)
        else:
            say(part)


def outcome_json(command: str, outcome: Outcome) -> str:
    """Returns an outcome as one line of JSON, with the format's version."""
    from ...convert.plain import json_text  # imports torch, which lines and tables do not need

    return json_text({"version": JSON_VERSION, "command": command, **outcome.to_json()}, default=str) + "\n"


@contextmanager
def result_file(
    target: Path | None, command: str, *, sources: Iterable[Path] = ()
) -> Iterator[Callable[[Outcome], None]]:
    """Checks before a command's work that its result can be written, and yields a function that writes it as JSON.

    Args:
        target: The file; None writes nothing.
        command: The command.
        sources: Files that are being read, none of which the target may be.

    Raises:
        OutputError: The file cannot be written, or holds anything but such a result.
    """
    from ...convert.files.write import marked_file

    with marked_file(target, marks=[f'"command": "{command}"'], sources=sources) as write:
        yield lambda outcome: write(outcome_json(command, outcome))
