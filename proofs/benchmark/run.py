"""Runs a benchmark: every candidate on every layer of the chosen tables, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ...convert.errors import ConversionError
from ..evidence.machine import Machine, kept_memory, torch_settings
from ..terminal.table import Table
from .candidates.results import Phase, Row, Summary, steadiness, summarise
from .candidates.shapes import NETWORK, NETWORKS, TABLES, BenchmarkLayer, check_table_names
from .candidates.trained import TRAINED
from .criteria import Criterion, evaluate
from .measuring.layers import measure_layer
from .measuring.measure import Settings
from .measuring.networks import measure_network
from .report import criteria_table, layer_tables, summary_table, trust

Tables = dict[str, tuple[BenchmarkLayer, ...]]


@dataclass(frozen=True)
class Benchmark:
    """A finished run.

    Attributes:
        machine: Where and when.
        settings: How.
        rows: What was measured.
        summaries: The rows, summed up over each table.
        criteria: What must hold, and whether it does.
    """

    machine: Machine
    settings: Settings
    rows: tuple[Row, ...]
    summaries: tuple[Summary, ...]
    criteria: tuple[Criterion, ...]
    exit_code: ClassVar[int] = 0  # a benchmark reports

    def to_json(self) -> dict[str, Any]:
        """The run as plain data."""
        lists = ("rows", "summaries", "criteria")
        return {
            "seed": self.settings.seed,
            "machine": self.machine.to_json(),
            "settings": self.settings.to_json(),
            "steady": dict(zip(("measurements", "of"), steadiness(self.rows), strict=True)),
            **{name: [item.to_json() for item in getattr(self, name)] for name in lists},
        }

    def shown(self) -> Iterator[Table | str]:
        """The run as tables and lines."""
        yield from layer_tables(self.rows)
        yield from (summary_table(self.summaries), criteria_table(self.criteria))
        yield from (f"Machine: {self.machine}", trust(self.rows), f"Seed: {self.settings.seed}")


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
    tables = {name: TABLES[name]() for name in chosen if name != NETWORK}
    rows: list[Row] = []
    with kept_memory(), torch_settings(threads=settings.threads, tf32=settings.tf32):
        machine = Machine.here(settings.device)
        for part in _measure(tables, settings, network=NETWORK in chosen):
            rows += part
            progress(1)
    return Benchmark(machine, settings, tuple(rows), summarise(rows), evaluate(rows))


def _measure(tables: Tables, settings: Settings, *, network: bool) -> Iterator[list[Row]]:
    for name, layers in tables.items():
        for phase in _phases(name, settings):
            for layer in layers:
                yield measure_layer(name, layer, settings, phase)
    for name in NETWORKS if network else ():
        yield from measure_network(name, settings)


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
