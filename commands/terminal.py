"""Prints what commands come to, as text for people or as JSON for programs. No other module prints.

Every text is made printable first (``show/text.py``), whatever file it comes from.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from ..show.text import CELL, LISTED, Table, printable

_NARROWEST_NAME = 12  # the first column may be folded to this, the others at spaces only
_UNLIMITED = 100_000  # characters of a table's line in a file
_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_results: TextIO | None = None  # where results go while everything else that is printed goes to standard error


def prepare_streams() -> None:
    """Makes the standard streams fit for any text: characters that a terminal's encoding lacks become escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def results_alone() -> Iterator[None]:
    """Redirects the output of all other code to standard error; only what is printed here reaches standard output.

    An architecture's code may print at any time: while it is built, run, traced or trained, here or in programs and
    processes that it starts. So the process's standard output is standard error's meanwhile, and a duplicate is ours.
    """
    global _results
    stream = sys.stdout
    own = os.dup(_STANDARD_OUTPUT) if stream is sys.__stdout__ else None
    if own is not None:
        stream.flush()
        os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
    _results = stream if own is None else os.fdopen(own, "w", encoding=stream.encoding, errors=stream.errors)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if own is not None:
            with suppress(OSError):  # what was printed to it all the same
                stream.flush()
            os.dup2(own, _STANDARD_OUTPUT)
            with suppress(OSError):  # that a reader left early was seen when it was printed to
                _results.close()
        _results = None


def say(*lines: object, err: bool = False) -> None:
    """Prints lines, each made printable."""
    say_document("".join(f"{printable(line)}\n" for line in lines), err=err)


def say_document(text: str, *, err: bool = False) -> None:
    """Prints one of our own texts unchanged, at once.

    Raises:
        ReaderLeftError: Nobody reads standard output any more.
        OSError: Standard output cannot be written.
    """
    stream = sys.stderr if err else _results or sys.stdout
    try:
        with suppress(OSError) if err else nullcontext():  # there is no other place to say so
            stream.write(text)
            stream.flush()
    except BrokenPipeError as error:
        raise ReaderLeftError from error


class ReaderLeftError(Exception):
    """Standard output is a pipe whose reader has enough, as in ``conv2attn claims | head -1``."""


def print_table(table: Table) -> None:
    """Prints a table; nothing if it has no rows.

    On a terminal it fits the width: cells are folded, and where not even their words fit, each row becomes a block of
    lines. A file has no width: there the table is as wide as it is.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    header, rows, _ = table
    if not rows:
        return
    # draw into memory, as wide as the terminal
    screen = Console(file=_results or sys.stdout)
    drawn = io.StringIO()
    console = Console(file=drawn, highlight=False, width=screen.width if screen.is_terminal else _UNLIMITED)
    texts = [[f"{c:,}" if isinstance(c, int) else printable(c, CELL) for c in row] for row in rows[:LISTED]]
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
    for index, name in enumerate(header):
        is_number = index > 0 and isinstance(rows[0][index], int)
        grid.add_column(
            Text(printable(name, CELL)), justify="right" if is_number else "left", overflow="fold", no_wrap=is_number
        )
    for row in texts:
        grid.add_row(*map(Text, row))
    # too narrow for the longest words: a block of lines for each row
    least = console.measure(grid, options=console.options.update(width=_UNLIMITED)).minimum
    longest_name = max(len(word) for row in texts for word in row[0].split(" "))
    if least - max(longest_name - _NARROWEST_NAME, 0) > console.width:
        for first, *others in texts:
            lines = [first, *(f"  {name}: {cell}" for name, cell in zip(header[1:], others, strict=True)), ""]
            console.print(Text("\n".join(lines), overflow="fold"))
    else:
        console.print(grid)
    say_document("".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines()))
    if len(rows) > LISTED:
        say(f"and {len(rows) - LISTED:,} more rows; --json prints all")


@contextmanager
def progress(what: str, *, total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on stderr if that is a terminal; without a total, a bar that only moves."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


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


def wrote(file: Path, content: str = "", /, **about: Any) -> Done:
    """Outcome of a command that wrote a file: its content in words, if they are given, and other facts for JSON."""
    return Done({"file": str(file), **about}, [f"Wrote {file}: {content}" if content else f"Wrote {file}"])


def print_outcome(command: str, outcome: Outcome, *, as_json: bool) -> None:
    """Prints the outcome of a command as tables and lines, or as one JSON object that names the command.

    An empty line stands between a table and what is next to it.
    """
    if as_json:
        say_document(outcome_json(command, outcome))
        return
    before: Table | str | None = None
    for part in outcome.shown():
        if isinstance(part, Table) and not part.rows:
            continue
        if before and part and (isinstance(part, Table) or isinstance(before, Table)):
            say("")
        print_table(part) if isinstance(part, Table) else say(part)
        before = part


def outcome_json(command: str, outcome: Outcome) -> str:
    """Returns an outcome as one line of JSON, with the format's version."""
    from ..convert.plain import json_text  # imports torch, which lines and tables do not need

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
    from ..convert.write import marked_file

    with marked_file(target, marks=[f'"command": "{command}"'], sources=sources) as write:
        yield lambda outcome: write(outcome_json(command, outcome))
