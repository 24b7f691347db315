"""Writes what a benchmark found into files, and refuses before the run what could not be written after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...convert.errors import OutputError, SelectionError
from ...convert.files.write import check_distinct, check_file, check_marked, write_file
from .candidates.shapes import check_table_names
from .report import markdown as as_markdown
from .run import Benchmark

LADDER = "ladder"  # the table that a plot shows
CREATOR = "conv2attn bench"  # stands in every plot


def check_outputs(names: Sequence[str], *, plot: Path | None, markdown: Path | None) -> None:
    """Checks the files that a run of the named tables is to write.

    Raises:
        SelectionError: There is no such table, or the plot shows one that is not measured.
        OutputError: A file cannot be written.
        ConversionError: A plot is wanted, and matplotlib is not installed.
    """
    chosen = check_table_names(names)
    check_distinct(file for file in (plot, markdown) if file is not None)
    if plot is not None:
        if LADDER not in chosen:
            raise SelectionError(f"a plot shows the table {LADDER}, which is not among {', '.join(chosen)}")
        _check_suffix(plot, ".svg")
        check_marked(plot, [CREATOR])
        _plotter()
    if markdown is not None:
        _check_suffix(markdown, ".md")
        check_file(markdown, force=True)


def write_outputs(benchmark: Benchmark, *, plot: Path | None, markdown: Path | None) -> None:
    """Writes the plot, replacing an earlier one, and appends the section to the results.

    Raises:
        OutputError: The file system refused.
    """
    if plot is not None:
        _write_file(plot, _plotter()(benchmark))
    if markdown is not None:
        _write_file(markdown, as_markdown(benchmark).encode(), append=True)


def _plotter() -> Callable[[Benchmark], bytes]:
    """The function that draws, imported only where a plot is wanted: it needs matplotlib.

    Raises:
        ConversionError: Matplotlib is not installed.
    """
    from .plot import plot

    return plot


def _check_suffix(target: Path, suffix: str) -> None:
    if target.suffix != suffix:
        raise OutputError(f"{target} cannot be written: the name of this output ends in {suffix}")


def _write_file(target: Path, content: bytes, *, append: bool = False) -> None:
    """Writes a file, or adds to it after an empty line; a run that is killed leaves the old one or the new one.

    Raises:
        OutputError: The file system refused.
    """
    try:
        before = target.read_bytes().rstrip() + b"\n\n" if append and target.exists() else b""
    except OSError as error:
        raise OutputError(f"{target} cannot be read: {error.strerror or error}") from error
    write_file(target, lambda path: path.write_bytes(before + content), force=True)
