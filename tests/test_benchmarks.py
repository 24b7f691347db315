"""One smoke test for each program that measures and can run here; planted faults are tested with ``same``."""

from __future__ import annotations

import importlib
import json
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.engines.convolution import Geometry
from conv2attn.learn.data.images import ImageData, Split
from conv2attn.learn.grafting import TITLES, compare_grafts
from conv2attn.learn.training.recipe import Recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs import each other as files of one folder."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def program(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize("what", ["networks", "--grafts", "--layers"])
def test_candidates_are_timed_beside_their_cnn_and_printed(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    bench, chosen = program("bench"), [] if what == "networks" else [what]
    few = ["--rounds", "2", "--side", "25", "--batch", "2", "--sample", "0", "--no-compile", "--threads", "1"]
    options = bench.parser().parse_args([*few, *chosen, "--markdown", str(tmp_path / "table.md")])
    rows = bench.run("1.2", {"tiny": tiny}, options)
    assert all(row.ratio == 1 for row in rows if row.candidate in ("CNN", "conv"))
    assert all(row.milliseconds > 0 and row.ratio > 0 and row.faults >= 0 for row in rows)
    about, *printed = map(json.loads, capsys.readouterr().out.splitlines())
    assert printed == [vars(row) for row in rows]
    assert (about["torchvision"], about["threads"], about["batch"]) == ("1.2", 1, 2)
    table = (tmp_path / "table.md").read_text().splitlines()
    assert sum(line.startswith("| tiny") for line in table) == len(rows)


@pytest.mark.slow
def test_denoisers_with_grafts_get_a_row_for_every_way_and_a_verdict(tmp_path: Path) -> None:
    denoisers, stamps, photographs = map(program, ("denoisers", "stamps", "photographs"))
    short = Recipe(epochs=1, lr=3e-3, clip=1.0)
    crops = [photographs.grid_crops("brick", "validation", 25, rows=1)]
    pages = [stamps.validation_pages(4)]
    for whole, draw, chosen, score in (
        (stamps.STAMPS, stamps.training_pages, pages, partial(stamps.score_pages, count=4)),
        (photographs.PHOTOGRAPHS, photographs.training_crops, crops, partial(photographs.score_photographs, rows=1)),
    ):
        data = denoisers.DrawnData(whole.name, draw, lambda chosen=chosen: chosen, steps=1, batch=2)
        small = replace(whole, data=data, start=short, onward=short, score=score, rates=(1e-3,), rounds=1)
        found = compare_grafts(small, tmp_path / whole.name, seeds=2)
        header, _, *rows, _, verdict = program("comparing").summary(small, found).splitlines()
        first = whole.measures[0]
        assert header.startswith(f"|  | {first.title}: before | after | difference |")
        titles = [*TITLES.values(), *(arm.title for arm in whole.arms.values())]
        assert [row.split(" | ")[0] for row in rows] == [f"| {title}" for title in titles]
        gain = statistics.fmean(found.gains("block", first.name))
        (row,) = (row for row in rows if row.startswith(f"| {TITLES['block']} |"))
        assert row.split(" | ")[3].startswith(f"{gain:+.{first.digits}f} ")
        assert verdict.startswith(("Grafting pays", "Grafting does not", "Undecided: "))


def test_solar_cells_are_scored_by_the_mean_over_grades() -> None:
    cells, labels = program("cells"), torch.tensor([0, 0, 0, 1, 1, 2])
    called = torch.tensor([0, 0, 1, 1, 0, 0])
    test = Split(F.one_hot(called, 4).float().view(6, 4, 1, 1), labels)
    data = ImageData("called", cells.GRADES, test, test, test)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 4, bias=False))
    nn.init.eye_(network.get_parameter("1.weight"))
    found = cells.score_grades(network, 0, data=lambda _: data)
    assert found["accuracy"] == pytest.approx(0.5)
    assert found["macro-F1"] == pytest.approx((4 / 7 + 2 / 4 + 0 + 0) / 4)  # 2 of 3 found, 4 called; 1 of 2, 2 called


def test_the_documents_say_of_the_calibration_of_same_what_its_lines_give(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = program("pairs")
    records = pairs.read(ROOT / "benchmarks" / "pairs.jsonl")
    pairs.table(records, list(pairs.WAYS), list(pairs.FAULTS), list(pairs.MISTAKES), pairs.half)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert [line for line in printed if line.lower() not in results.lower()] == []
    assert sum(line.startswith("| ") for line in printed) > 50
    said = " ".join(results.split())
    page = " ".join((ROOT / "docs" / "same.md").read_text(encoding="utf-8").split())
    networks, _, _, families, _, honest = printed[0].split()[:6]
    assert networks == families
    assert f"So far {networks} of 60 networks have been tested, each from a different family" in said
    assert f"{honest} honest pairs" in said
    judging = next(line for line in printed if line.startswith("judging half"))
    assert f"none of the {judging.split()[2]} pairs raises an alarm" in said
    assert f"among {judging.split()[2]} bug-free pairs in the other half" in page


@pytest.mark.parametrize(
    ("name", "verdicts", "said"),
    [
        ("batches", ("rounding", "same bits"), ""),  # by the processor's kernels
        ("layouts", ("rounding", "same bits"), ""),
        ("gelus", ("not rounding",), "It begins at `gelu` (gelu): approximate none in A, tanh in B."),
        ("resized", ("not rounding",), "Resize with coordinate_transformation_mode=pytorch_half_pixel"),
        ("inverted", ("cannot say",), "rounding in the last bit already changes the outputs completely."),
    ],
)
def test_a_public_thread_has_the_verdict_that_the_document_gives(
    name: str, verdicts: tuple[str, ...], said: str
) -> None:
    threads = program("threads")
    verdict = threads.found(name)
    assert verdict.verdict in verdicts
    assert said in verdict.sentence
    assert threads.THREADS[name].address in (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")


@pytest.mark.fault
@pytest.mark.parametrize("value", [1.0, torch.nan])
def test_a_wrong_number_of_a_call_is_found(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_convolutions = program("wrong_convolutions")
    call = wrong_convolutions.Call((2, 3, 5, 6), (4, 3, 2, 3), Geometry((1, 2), (0, 1), (2, 1)))
    monkeypatch.setitem(wrong_convolutions.TABLE, "planted", call)
    monkeypatch.setattr(wrong_convolutions, "_TIMES", 1)
    assert wrong_convolutions.said("planted", "contiguous").startswith(("Rounding", "Same"))

    def wrong(x: Tensor, *rest: Any) -> Tensor:
        y = F.conv2d(x, *rest)
        return y if x.dtype == torch.float64 else torch.cat([y[:, :3], y[:, 3:] + value], 1)

    monkeypatch.setattr(wrong_convolutions, "_CALLS", (F.conv1d, wrong, F.conv3d))
    assert wrong_convolutions.said("planted", "contiguous").startswith("Not rounding")


def test_tables_of_language_models_count_pairs_alarms_and_what_was_found() -> None:
    models = program("language_models")
    pair = {"model": "Llama", "dtype": "float32", "kind": "a copy", "verdict": "same bits", "ratio": 0.0}
    lines = models.honest_table([pair, {**pair, "model": "T5", "verdict": "not rounding", "ratio": 7.0}])
    assert "| a copy | 2, 1, 7; T5: not rounding |  |  |" in lines
    assert lines[-1] == "2 honest pairs, 1 alarms, 0 without a verdict."
    fault = {
        **pair,
        "kind": "the scale",
        "verdict": "not rounding",
        "found": True,
        "named": True,
        "told": False,
        "size": "10 %",
    }
    missed = {**fault, "size": "0.01 %", "found": False, "verdict": "same bits"}
    table = models.planted_table([fault, missed])
    assert table[-1].endswith(
        "| float32 | 10 %: 1 of 1; 1 %: 0 of 0; 0.1 %: 0 of 0; 0.01 %: 0 of 1 (1 same bits) | 1 of 1 | 0 of 1 |"
    )


def test_every_planted_fault_fits_models_of_the_list() -> None:
    faults, zoo = program("language_faults"), program("language_zoo")
    for kind, fault in faults.FAULTS.items():
        assert set(fault.models) <= set(zoo.MODELS), kind
        assert fault.sizes, kind
