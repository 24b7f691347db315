"""Fuzzes the reading of converted folders with atheris, guided by the coverage of the code that reads them.

    pip install '.[fuzz]'
    python -m tests.fuzz.fuzz_folders -max_total_time=1800 -timeout=600 -rss_limit_mb=900 WORK

WORK is an empty folder, which gets the seeds first. The fuzzer stops where ``fuzz_readers`` does.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris
import torch  # noqa: F401  before the instrumented imports: torch's own coverage is not wanted

with atheris.instrument_imports(
    include=["conv2attn.convert.files", "conv2attn.convert.spec", "conv2attn.proofs.show.subject"]
):
    from tests.fuzz.folders import one_folder, seeds
    from tests.fuzz.texts import mutated


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Mutates the JSON texts of an input where they are JSON, else its bytes."""
    try:
        return mutated(data, random.Random(seed))[:max_size]
    except (ValueError, LookupError, RecursionError):
        return bytes(atheris.Mutate(data, max_size))


def main() -> None:
    """Runs the fuzzer with the options of libFuzzer."""
    work = Path(next(argument for argument in sys.argv[1:] if not argument.startswith("-")))
    for number, seed in enumerate(seeds()):
        (work / f"seed-{number}").write_bytes(seed)
    atheris.Setup(sys.argv, one_folder, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
