"""Runs a benchmark: every candidate on every layer of the chosen tables, in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ...convert.errors import ConversionError, OutputError, SelectionError
from ...convert.files.write import check_distinct, check_file, check_marked, write_file
from ..evidence.machine import describe_machine
from ..terminal.table import Table
from .criteria import Criterion, evaluate
from .measure import Settings, settings_applied
from .report import criteria_table, layer_tables, ratio_tables, section, summary_table, trust
from .results import Phase, Row, Summary, steadiness, summarise
from .rows import measure_layer, measure_network
from .tables import LADDER, NETWORK, NETWORKS, TABLES, check_table_names
from .trained import TRAINED

CREATOR = "conv2attn bench"  # stands in every plot


@dataclass(frozen=True)
class Benchmark:
    """A finished run.

    Attributes:
        machine: Where and when.
        load: Average load of the system before the run, where it tells it: others' programs make short parallel calls
            wait for their turn, so times of a busy machine mean little.
        settings: How.
        rows: What was measured.
        summaries: The rows, summed up over each table.
        criteria: What must hold, and whether it does.
    """

    machine: str
    load: float | None
    settings: Settings
    rows: tuple[Row, ...]
    summaries: tuple[Summary, ...]
    criteria: tuple[Criterion, ...]
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
            "summaries": [asdict(summary) for summary in self.summaries],
            "criteria": [criterion.to_json() for criterion in self.criteria],
        }

    def shown(self) -> Iterator[Table | str]:
        """The run as tables and lines."""
        yield from layer_tables(self.rows)
        yield from (summary_table(self.summaries), criteria_table(self.criteria))
        yield from (f"Machine: {self.place}", trust(self.rows), f"Seed: {self.settings.seed}")

    def markdown(self) -> str:
        """The run as a section of benchmarks/RESULTS.md."""
        settings = self.settings.to_json()
        name, *_, date = self.machine.split(", ")
        options = ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, False))
        lines = [f"{self.place}.", f"Settings: {options}.", trust(self.rows)]
        tables = [criteria_table(self.criteria), summary_table(self.summaries), *ratio_tables(self.rows)]
        return section(f"{name}, {settings['dtype']}, {date}", lines, tables)


def steps(names: Sequence[str], settings: Settings) -> int:
    """How often ``run_benchmark`` reports progress."""
    networks = (len(settings.phases) + 1) * len(NETWORKS)
    return sum(
        networks if name == NETWORK else len(_phases(name, settings)) * len(TABLES[name]())
        for name in check_table_names(names)
    )


def run_benchmark(
    names: Sequence[str], settings: Settings, *, progress: Callable[[int], None] = lambda _: None
) -> Benchmark:
    """Measures the named tables, all of them if none is named.

    Args:
        names: Out of ``TABLE_NAMES``.
        settings: How to measure.
        progress: Called with 1 after each of ``steps`` steps.

    Raises:
        SelectionError: There is no such table.
        ConversionError: There is no such device.
    """
    chosen = check_table_names(names)
    check_device(settings.device)
    rows: list[Row] = []
    with settings_applied(settings):
        machine = describe_machine(settings.device)
        load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
        for part in _measure(chosen, settings):
            rows += part
            progress(1)
    return Benchmark(machine, load, settings, tuple(rows), summarise(rows), evaluate(rows))


def _measure(names: Sequence[str], settings: Settings) -> Iterator[list[Row]]:
    for name in names:
        if name == NETWORK:
            for network in NETWORKS:
                yield from measure_network(network, settings)
        else:
            layers = TABLES[name]()
            yield from (measure_layer(name, layer, settings, p) for p in _phases(name, settings) for layer in layers)


def _phases(table: str, settings: Settings) -> tuple[Phase, ...]:
    """What is timed on the layers of a table: of those that are trained, forward + backward only."""
    return (Phase.training,) if table in TRAINED else settings.phases


def check_device(device: torch.device) -> None:
    """Refuses a device that is not there.

    Raises:
        ConversionError: It is neither the CPU nor an available GPU.
    """
    if device.type not in ("cpu", "cuda"):
        raise ConversionError(f"a benchmark runs on cpu or cuda; got {device}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConversionError(f"there is no {device} here; torch sees {torch.cuda.device_count()} CUDA devices")


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
        try:
            before = markdown.read_bytes().rstrip() + b"\n\n" if markdown.exists() else b""
        except OSError as error:
            raise OutputError(f"{markdown} cannot be read: {error.strerror or error}") from error
        text = before + benchmark.markdown().encode()
        write_file(markdown, lambda path: path.write_bytes(text), force=True)
