"""Writes what a benchmark found into files, and refuses before the run what could not be written after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ...convert.errors import OutputError, SelectionError
from ...convert.files.writing.atomic import write_file
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
    if plot is not None:
        if LADDER not in chosen:
            raise SelectionError(f"a plot shows the table {LADDER}, which is not among {', '.join(chosen)}")
        _check_file(plot, suffix=".svg")
        _plotter()
    if markdown is not None:
        _check_file(markdown, suffix=".md")


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


def _check_file(target: Path, *, suffix: str) -> None:
    """Refuses a file that could not be written after the run.

    Raises:
        OutputError: It has another suffix, is a folder, or it or its folder is not writable.
    """
    place = target if target.exists() else target.parent
    if target.suffix != suffix:
        raise OutputError(f"{target} cannot be written: the name of this output ends in {suffix}")
    if target.is_dir() or not target.parent.is_dir():
        missing = f"there is no folder {target.parent}" if not target.parent.is_dir() else "it is a folder"
        raise OutputError(f"{target} cannot be written: {missing}")
    if not os.access(place, os.W_OK):
        raise OutputError(f"{target} cannot be written: {place} is not writable")
    if suffix == ".svg" and target.exists() and CREATOR.encode() not in target.read_bytes():
        raise OutputError(f"{target} exists, and conv2attn bench did not draw it; it stays")


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
