"""Fuzzes every reader of checkpoints with atheris, guided by the coverage of the readers' own code.

    pip install '.[fuzz]'
    python -m tests.fuzz.fuzz_readers -max_total_time=1800 -timeout=600 -rss_limit_mb=900 WORK tests/fuzz/corpus

WORK is an empty folder for what is found on the way. The fuzzer stops at an input that raises anything but a
``ConversionError``, takes 5 seconds of processor time, takes too much memory, or crashes the process.
"""

from __future__ import annotations

import sys

import atheris
import torch  # noqa: F401  before the instrumented imports: torch's own coverage is not wanted

with atheris.instrument_imports(
    include=["conv2attn.convert.files.readers", "conv2attn.convert.files.checkpoint", "pickletools"]
):
    from tests.fuzz.target import one_input


def main() -> None:
    """Runs the fuzzer with the options of libFuzzer."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
