"""Runs a benchmark: every candidate on every layer of the chosen tables, in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...convert.errors import OutputError, SelectionError
from ...convert.files.write import check_distinct, check_file, check_marked, file_system_errors, write_file
from ..evidence.arithmetic import check_device, describe_machine
from ..terminal.output import Table
from .candidates import TRAINED
from .measure import Settings, settings_applied
from .results import Phase, Row, ratio_tables, section, steadiness, summarise, summary_table, trust
from .rows import measure_layer, measure_network
from .tables import LADDER, NETWORK, NETWORKS, TABLES, check_table_names

CREATOR = "conv2attn bench"  # stands in every plot


@dataclass(frozen=True)
class Benchmark:
    """A finished run."""

    machine: str  # description of the machine, and the day
    # average load of the system before the run, where known: other programs make short parallel calls wait, so
    # times on a busy machine mean little
    load: float | None
    settings: Settings
    rows: tuple[Row, ...]
    exit_code: ClassVar[int] = 0  # a benchmark reports

    @property
    def place(self) -> str:
        """The machine and its load, in words."""
        return self.machine + ("" if self.load is None else f", load {self.load:.1f} before the run")

    def to_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "seed": self.settings.seed,
            "machine": self.machine,
            "load": self.load,
            "settings": self.settings.to_json(),
            "steady": dict(zip(("measurements", "of"), steadiness(self.rows), strict=True)),
            "rows": [row.to_json() for row in self.rows],
            "summaries": summarise(self.rows),
        }

    def shown(self) -> list[Table | str]:
        """The run as tables and lines."""
        reasons = dict.fromkeys(f"{row.candidate}, {row.layer}: {row.reason}" for row in self.rows if row.reason)
        lines = (*reasons, f"Machine: {self.place}", trust(self.rows), f"Seed: {self.settings.seed}")
        return [*ratio_tables(self.rows), summary_table(self.rows), *lines]

    def markdown(self) -> str:
        """The run as a section of benchmarks/RESULTS.md."""
        settings = self.settings.to_json()
        name, *_, date = self.machine.split(", ")
        options = ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, False))
        lines = [f"{self.place}.", f"Settings: {options}.", trust(self.rows)]
        return section(
            f"{name}, {settings['dtype']}, {date}", lines, [summary_table(self.rows), *ratio_tables(self.rows)]
        )


def measurements(names: Sequence[str], settings: Settings) -> list[Callable[[], Iterable[Row]]]:
    """The measurements of the named tables, all of them if none is named, in the order of the results.

    Of layers that are trained, forward + backward alone is timed.

    Raises:
        SelectionError: There is no such table.
    """
    found: list[Callable[[], Iterable[Row]]] = []
    for table in check_table_names(names):
        if table == NETWORK:
            found += [partial(measure_network, network, settings) for network in NETWORKS]
            continue
        layers = TABLES[table]()
        for phase in (Phase.training,) if table in TRAINED else settings.phases:
            found += [partial(measure_layer, table, layer, settings, phase) for layer in layers]
    return found


def run_benchmark(
    names: Sequence[str], settings: Settings, *, progress: Callable[[int], None] = lambda _: None
) -> Benchmark:
    """Measures the named tables, all of them if none is named.

    Args:
        names: Out of ``TABLE_NAMES``.
        settings: Settings of the measurements.
        progress: Called with 1 after each of ``measurements``.

    Raises:
        SelectionError: There is no such table.
        ConversionError: The device cannot be used.
    """
    check_device(str(settings.device))
    rows: list[Row] = []
    with settings_applied(settings):
        machine = describe_machine(settings.device)
        load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
        for measurement in measurements(names, settings):
            rows += measurement()
            progress(1)
    return Benchmark(machine, load, settings, tuple(rows))


def check_outputs(names: Sequence[str], *, plot: Path | None, markdown: Path | None) -> None:
    """Checks, before a run of the named tables, the files that it is to write.

    Raises:
        SelectionError: There is no such table, or the plot shows one that is not measured.
        OutputError: A file cannot be written.
        ConversionError: A plot is wanted, and matplotlib is not installed.
    """
    chosen = check_table_names(names)
    check_distinct(file for file in (plot, markdown) if file is not None)
    for file, suffix in ((plot, ".svg"), (markdown, ".md")):
        if file is not None and file.suffix != suffix:
            raise OutputError(f"{file} cannot be written: the name of this output ends in {suffix}")
    if plot is not None:
        if LADDER not in chosen:
            raise SelectionError(f"a plot shows the table {LADDER}, which is not among {', '.join(chosen)}")
        check_marked(plot, [CREATOR])
        from . import plot as _  # noqa: F401  it needs matplotlib
    if markdown is not None:
        check_file(markdown, force=True)


def write_outputs(benchmark: Benchmark, *, plot: Path | None, markdown: Path | None) -> None:
    """Writes the plot, replacing an earlier one, and appends the section to the results.

    Raises:
        OutputError: The file system refused.
    """
    if plot is not None:
        from .plot import plot_ladder

        drawn = plot_ladder(benchmark)
        write_file(plot, lambda path: path.write_bytes(drawn), force=True)
    if markdown is not None:
        with file_system_errors(markdown):
            before = markdown.read_bytes().rstrip() + b"\n\n" if markdown.exists() else b""
        text = before + benchmark.markdown().encode()
        write_file(markdown, lambda path: path.write_bytes(text), force=True)
