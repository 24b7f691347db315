"""Peak memory of ``same`` on a recorded file of about 1 GB, beside a file that holds the inputs and outputs alone.

    python -m benchmarks.large_recording [--values 64]

Both files are of the same run, whose norm in the middle has another eps, or whose last digits alone are others. Each is
compared in a process of its own, on Linux. Resident memory counts pages of mapped files, too, while they are mapped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import conv2attn as c2a

SHAPE = (16, 256, 1024)  # 16 MiB in float32
_EPS = {"right": 1e-5, "wrong eps": 1e-2}


def network(count: int, eps: float = 1e-5) -> nn.Sequential:
    """Scaled norms one after another."""
    torch.manual_seed(0)
    layers = [nn.LayerNorm(SHAPE[-1], eps if place == count // 2 else 1e-5) for place in range(count)]
    for one in layers:
        nn.init.normal_(one.weight, 1.0, 0.1)
    return nn.Sequential(*layers).eval()


@torch.no_grad()
def record(count: int, eps: float, folder: Path) -> dict[str, Path]:
    """Writes both files; sums in float64 stand for another engine's."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    tensors, y = {"input": x}, x
    for name, layer in network(count, eps).named_children():
        y = layer.double()(y.double()).float()
        tensors[name] = y
    paths = {name: folder / f"{name}.safetensors" for name in ("outputs alone", "all values")}
    save_file({"input": x, "output": y.clone()}, paths["outputs alone"])
    save_file({**tensors, "output": y.clone()}, paths["all values"])
    return paths


def measure(count: int, path: Path) -> None:
    """Compares a file in this process, and prints what it took."""
    before, start = _peak(), time.perf_counter()
    found = c2a.same(network(count), path)
    print(f"{found.verdict} | {len(found.where)} | {_peak() - before:.0f} | {time.perf_counter() - start:.0f}")


def _peak() -> float:
    """Most MiB of this program; ``getrusage`` counts those of the program that started it, too."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


def run() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--values", type=int, default=64)
    parser.add_argument("--file", type=Path, help="compare this file alone")
    chosen = parser.parse_args()
    if chosen.file is not None:
        measure(chosen.values, chosen.file)
        return
    print("B | file | MiB | verdict | places | MiB of peak memory above import | seconds")
    for name, eps in _EPS.items():
        with tempfile.TemporaryDirectory() as folder:
            for kind, path in record(chosen.values, eps, Path(folder)).items():
                own = [sys.executable, "-m", "benchmarks.large_recording", "--values", str(chosen.values)]
                said = subprocess.run([*own, "--file", str(path)], check=True, capture_output=True, text=True).stdout
                print(name, kind, f"{path.stat().st_size / 2**20:.0f}", said.strip(), sep=" | ", flush=True)


if __name__ == "__main__":
    run()
