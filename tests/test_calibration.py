"""What the documents say of the calibration of ``same`` is what its lines give."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
LINES = ROOT / "benchmarks" / "pairs.jsonl"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    pairs: ModuleType = importlib.import_module("pairs")
    pairs.table(pairs.read(LINES), list(pairs.WAYS), list(pairs.FAULTS), pairs.half)
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_the_results_are_those_of_the_lines(printed: list[str]) -> None:
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").lower()
    assert [line for line in printed if line.lower() not in text] == []
    assert sum(line.startswith("| ") for line in printed) > 50


def test_the_page_says_how_many_pairs_were_judged_and_faults_found(printed: list[str]) -> None:
    text = (ROOT / "docs" / "same.md").read_text(encoding="utf-8")
    networks, _, _, families, _, honest = printed[0].split()[:6]
    assert f"So far {networks} of 150 networks have run, each of another family" in text
    assert networks == families
    assert f"{honest} honest pairs" in text
    judging = next(line for line in printed if line.startswith("judging half"))
    assert f"none of the {judging.split()[2]} pairs raises an alarm" in " ".join(text.split())
