"""Converts a checkpoint of 2 GB, and compares time and memory with reading and writing it.

    python benchmarks/large_checkpoint.py [FOLDER]

Writes 4 GB into FOLDER (by default the system's temporary folder) and deletes it again. Exits with 1 if the conversion
takes more than three times as long as reading and writing the file, or more memory than its size and 512 MB.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

WIDTH, DEPTH = 1024, 56  # 56 layers of 36 MiB
PART = 2**22


def network() -> nn.Module:
    """The architecture: 3x3 convolutions and nothing else."""
    return nn.Sequential(*(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(DEPTH)))


def generate(path: Path) -> None:
    """Writes a state dict of random weights."""
    with torch.device("meta"):
        shapes = {key: value.shape for key, value in network().state_dict().items()}
    torch.save({key: torch.randn(shape) * 0.01 for key, shape in shapes.items()}, path)


def seconds_to_copy(path: Path) -> float:
    """Seconds to read the file and to write it to disk again."""
    copy = path.with_suffix(".copy")
    start = time.perf_counter()
    with path.open("rb") as source, copy.open("wb") as target:
        while part := source.read(PART):
            target.write(part)
        target.flush()
        os.fsync(target.fileno())
    seconds = time.perf_counter() - start
    copy.unlink()
    return seconds


def convert(path: Path) -> tuple[float, int]:
    """Seconds and bytes of memory that the command takes."""
    arch = f"{Path(__file__).resolve()}:network"
    command = [sys.executable, "-m", "conv2attn.cli", "convert", str(path), "--arch", arch]
    start = time.perf_counter()
    subprocess.run([*command, "--out", str(path.with_name("out"))], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main() -> int:
    """Measures, prints what was found, and gives the exit code."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        path = Path(folder, "weights.pth")
        generate(path)
        size, copying = path.stat().st_size, seconds_to_copy(path)
        seconds, memory = convert(path)
    print(f"file            {size / 2**20:8.0f} MiB")
    print(f"peak memory     {memory / 2**20:8.0f} MiB, at most {size / 2**20 + 512:.0f}")
    print(f"read and write  {copying:8.1f} s")
    print(f"conversion      {seconds:8.1f} s, at most {3 * copying:.1f}")
    return int(seconds > 3 * copying or memory > size + 512 * 2**20)


if __name__ == "__main__":
    sys.exit(main())
