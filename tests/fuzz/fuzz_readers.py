"""Fuzzes the reader of one kind of checkpoint with atheris, guided by the coverage of the readers' own code.

    pip install '.[fuzz]'
    python -m tests.fuzz.fuzz_readers KIND -max_total_time=1800 -timeout=600 -rss_limit_mb=900 WORK

KIND is one of ``target.KINDS``. WORK is an empty folder, which gets what the corpus has of the kind first. The fuzzer
stops at an input that raises anything but a ``ConversionError``, takes 5 seconds of processor time, takes too much
memory, or crashes the process.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris
import torch  # noqa: F401  before the instrumented imports: torch's own coverage is not wanted

with atheris.instrument_imports(
    include=["conv2attn.convert.files.readers", "conv2attn.convert.files.checkpoint", "pickletools"]
):
    from tests.fuzz.target import KINDS, as_kind, one_input
    from tests.fuzz.texts import mutated


def mutate_text(data: bytes, max_size: int, seed: int) -> bytes:
    """Mutates the JSON texts behind the first byte half of the time, else any bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        try:
            return (data[:1] + mutated(data[1:], chance))[:max_size]
        except (ValueError, LookupError, RecursionError):
            pass
    return bytes(atheris.Mutate(data, max_size))


def main() -> None:
    """Runs the fuzzer with the options of libFuzzer."""
    kind, *options = sys.argv[1:]
    work = Path(next(option for option in options if not option.startswith("-")))
    for path in (Path(__file__).parent / "corpus").iterdir():
        content = path.read_bytes()
        if as_kind(kind, content) == content:
            (work / path.name).write_bytes(content)
    texts = {"custom_mutator": mutate_text} if KINDS[kind][1] == b"{" else {}
    atheris.Setup([sys.argv[0], *options], lambda data: one_input(as_kind(kind, data)), **texts)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
