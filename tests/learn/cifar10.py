"""Archives of the form of CIFAR-10's with few images."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from conv2attn.learn.data.datasets import BATCHES


def batches(count: int = 20) -> dict[str, bytes]:
    """Random images and labels, of every class alike, for each batch."""
    rng = np.random.default_rng(0)
    found = {}
    for name in BATCHES:
        records = rng.integers(0, 256, (count, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        found[f"cifar-10-batches-bin/{name}"] = records.tobytes()
    return found


def write_archive(path: Path, files: Mapping[str, bytes]) -> Path:
    """Packs files."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
