"""Fuzzes the reading of images with atheris, guided by the coverage of numpy's and Pillow's Python code and our own.

    pip install '.[fuzz,images]'
    python -m tests.fuzz.fuzz_images -max_total_time=1800 -timeout=600 -rss_limit_mb=1200 WORK

WORK is an empty folder, which gets the seeds first. The fuzzer stops where ``fuzz_readers`` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris
import torch  # noqa: F401  before the instrumented imports: torch's own coverage is not wanted

with atheris.instrument_imports(
    include=["PIL", "numpy.lib", "conv2attn.proofs.evidence.image_folder", "conv2attn.learn.data.pictures"]
):
    from tests.fuzz.images import one_image, seeds


def main() -> None:
    """Runs the fuzzer with the options of libFuzzer."""
    work = Path(next(argument for argument in sys.argv[1:] if not argument.startswith("-")))
    for number, seed in enumerate(seeds()):
        (work / f"seed-{number}").write_bytes(seed)
    atheris.Setup(sys.argv, one_image)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
