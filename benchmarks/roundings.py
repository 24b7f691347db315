"""How near torch's operations come to the roundings that a network's certificate claims of them.

    python -m benchmarks.roundings [--draws 20000] [--operation conv2d]

Prints the table of ``benchmarks/CERTIFICATE.md``: for each operation and precision, the largest difference from float64
as a share of what is claimed, with torch's kernels for three kinds of processors. The exit code is 1 if a share exceeds
1. Variables choose the kernels, which torch reads as it starts: each kind has a process of its own, one after another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import torch
import typer

from tests.convert.certificate.network.draws import DRAWS, precisions
from tests.convert.certificate.network.roundings import Comparison, compare_operation

KERNELS: dict[str, dict[str, str]] = {
    "as found": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "SSE 4.1": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}
Found = dict[tuple[str, str], dict[str, Comparison]]  # by operation and precision, and by kernels


def measure(names: list[str], draws: int, seed: int) -> None:
    """Prints the comparisons of this process's kernels, one a line, as JSON."""
    torch.set_num_threads(1)  # tensors are small
    for name in names:
        for dtype in precisions(name):
            found = compare_operation(name, dtype, draws, seed=seed)
            print(json.dumps([name, str(dtype).removeprefix("torch."), asdict(found)]), flush=True)


def measured_with(kernels: str, names: list[str], draws: int, seed: int) -> Iterator[tuple[str, str, Comparison]]:
    """Operation, precision and comparison of each, by a process with these kernels."""
    options = [f"--operation={name}" for name in names]
    command = [sys.executable, "-m", "benchmarks.roundings", "--here", f"--draws={draws}", f"--seed={seed}", *options]
    with subprocess.Popen(
        command, env={**os.environ, **KERNELS[kernels]}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, dtype, values = json.loads(line)
            print(f"{kernels}: {name}, {dtype}: {values}", file=sys.stderr, flush=True)
            yield name, dtype, Comparison(**values)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def table(found: Found) -> list[str]:
    """The table in Markdown: a row for each operation and precision."""
    columns = [
        f"| operation | precision | draws | {' | '.join(KERNELS)} | violations |",
        "|" + " --- |" * (4 + len(KERNELS)),
    ]
    for (name, dtype), by_kernels in found.items():
        each = by_kernels.values()
        draws, violations = sum(one.draws for one in each), sum(one.violations for one in each)
        shares = " | ".join(f"{one.largest:.3f}" for one in each)
        columns.append(f"| {name} | {dtype} | {draws:,} | {shares} | {violations} |")
    return columns


def main(
    draws: Annotated[int, typer.Option(help="Draws of each operation and precision.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    operation: Annotated[list[str] | None, typer.Option(help="Operations to compare.", show_default="all")] = None,
    here: Annotated[bool, typer.Option(help="Use this process's kernels only, and print JSON.")] = False,
) -> None:
    """Compares the rounding of each operation with what is claimed."""
    names = operation or list(DRAWS)
    if here:
        measure(names, draws, seed)
        return
    found: Found = {}
    for kernels in KERNELS:
        for name, dtype, comparison in measured_with(kernels, names, draws, seed):
            found.setdefault((name, dtype), {})[kernels] = comparison
    print("\n".join(table(found)))
    if any(one.violations for by_kernels in found.values() for one in by_kernels.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
