"""``benchmarks/bench.py`` on a tiny network: each candidate is timed in every mode, and every call is counted."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "bench.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = spec_from_file_location("benchmarks_bench", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, found)  # dataclasses look for their module there
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def tiny() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))


def run(bench: Any, tiny: nn.Module, *arguments: str) -> list[Any]:
    few = ["--rounds", "2", "--side", "9", "--batch", "2", "--sample", "0", "--no-compile", "--threads", "1"]
    found: list[Any] = bench.run("1.2", {"tiny": tiny}, bench.parser().parse_args([*few, *arguments]))
    return found


def test_networks_are_timed_beside_their_cnn_in_every_mode(
    bench: Any, tiny: nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(bench, tiny, "--markdown", str(tmp_path / "table.md"))
    modes = [
        f"eager, {layout}, {phase}"
        for layout in ("contiguous format", "channels last")
        for phase in ("forward", "step")
    ]
    candidates = ["CNN", "control", "exact", "soft, alpha 2"]
    assert [(row.mode, row.candidate) for row in rows] == [(mode, one) for mode in modes for one in candidates]
    assert all(row.ratio == 1 for row in rows if row.candidate == "CNN")
    assert all(row.milliseconds > 0 and row.ratio > 0 and row.faults >= 0 for row in rows)
    about, *printed = map(json.loads, capsys.readouterr().out.splitlines())
    assert printed == [vars(row) for row in rows]
    assert (about["torchvision"], about["threads"], about["batch"], about["side"]) == ("1.2", 1, 2, 9)
    table = (tmp_path / "table.md").read_text().splitlines()
    assert sum(line.startswith("| tiny |") for line in table) == len(rows)


def test_grafts_are_timed_beside_a_block_by_hand(bench: Any, tiny: nn.Module) -> None:
    rows = run(bench, tiny, "--grafts", "--side", "25")
    assert {row.candidate for row in rows} == {"CNN", "control", "block", "heads in front", "heads beside"}


def test_layers_are_timed_in_each_engine_that_can_compute_them(bench: Any, tiny: nn.Module) -> None:
    rows = run(bench, tiny, "--layers")
    assert [row.what for row in rows if row.ratio == 1 and row.candidate == "conv"] == [
        *["tiny: 3x3, 3->4, stride 2, padding 1, 9x9"] * 2,
        *["tiny: 1x1, 4->2, 5x5"] * 2,
    ]
    first = {row.candidate for row in rows if row.what == rows[0].what and row.mode == "eager, forward"}
    engines = {row.removeprefix("exact ") for row in first if row.startswith("exact ")}
    assert engines == {"auto", "literal", "sdpa", "separable", "factored"}
    assert {"soft auto", "soft literal", "soft separable", "soft factored"} <= first
    assert [row.candidate for row in rows if row.mode == "eager, step"][:4] == [
        *("conv", "exact auto", "soft auto", "trained positions"),
    ]


def test_each_call_is_counted_for_its_page_faults(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that torch makes before it measures."""
    faults = [0]

    def call() -> None:
        faults[0] += 7

    monkeypatch.setattr(bench, "page_faults", lambda: faults[0])
    (row,) = bench.measured("what", "mode", {"one": call}, rounds=3, sample=0.001)
    assert row.faults == 7


def test_networks_need_torchvision_and_a_name_that_it_has(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    models = SimpleNamespace(list_models=lambda: ["small"], get_model=lambda name, weights: (name, weights))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(__version__="1", models=models))
    assert bench.networks(["small"]) == ("1", {"small": ("small", None)})
    with pytest.raises(SystemExit, match="torchvision 1 has no network large"):
        bench.networks(["small", "large"])
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(SystemExit, match="pip install torchvision"):
        bench.networks(["small"])
