"""Heads in two processes compute, and train, what they do in one."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.processes import finished


def test_heads_in_two_processes_compute_and_train_as_in_one_bit_for_bit_on_whole_numbers(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.convert.export.two_processes_of_heads"]
    done = finished([*command, tmp_path / "store"], cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        *(f"{name}:same" for name in ("grouped", "transposed", "sequence")),
        "soft:close",
        "refused:heads",
        "refused:taps",
    ]
