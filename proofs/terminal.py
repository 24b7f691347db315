"""Tables and progress bars on a terminal, and in a file that stands for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table as wide as the terminal, or as wide as it is if there is none; nothing if it has no rows."""
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="")
    for index, name in enumerate(header):
        numeric = index > 0 and isinstance(rows[0][index], int)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:  # a file has no width
        console.width = max(Measurement.get(console, console.options.update(max_width=10_000), table).maximum, 1)
    console.print(table)


@contextmanager
def progress(what: str, *, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal; without a total, one that only moves."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
