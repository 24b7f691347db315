"""Tables and progress bars on a terminal, and in a file that stands for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from conv2attn.proofs.layout import blocks, column_widths, short_names


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table; nothing if it has no rows.

    On a terminal it fits the width: long names are shortened, cells are folded, and where that is not enough each row
    becomes a block of lines. A file has no width: there the table is as wide as it is, with whole names.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    numeric = [index > 0 and isinstance(cell, int) for index, cell in enumerate(rows[0])]
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    console, around = Console(highlight=False), 3 * len(header) - 1
    if console.is_terminal:
        for row, name in zip(texts, short_names([row[0] for row in texts]), strict=True):
            row[0] = name
    columns = list(zip(header, *texts, strict=True))
    widths = column_widths(columns, console.width - around if console.is_terminal else None)
    if widths is None:
        for line in blocks(header, texts):
            console.print(Text(line, overflow="fold"))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="")
    for name, width, is_number in zip(header, widths, numeric, strict=True):
        table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold", width=width)
    for row in texts:
        table.add_row(*map(Text, row))
    console.width = sum(widths) + around
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
