"""Engines beside conv2attn: the runner, what is said of an honest engine and of a bug in one, and the recipes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.engines import __main__ as runner
from benchmarks.engines import functions
from benchmarks.engines.faults import FAULTS, planted
from benchmarks.engines.judged import UNITS, Tapped, inside, judged, modules
from benchmarks.engines.networks import Case, case
from benchmarks.engines.port import NAMES as ENGINES
from benchmarks.engines.port import ported
from benchmarks.engines.table import PAGE, between, rewritten
from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.noise import Noise, Noisy
from conv2attn.convert.programs.program import Program

RECIPES = (Path(__file__).parents[1] / "docs" / "other-engines.md").read_text(encoding="utf-8")
TABLES = PAGE.read_text(encoding="utf-8")
PACKAGES = {"openvino", "litert_torch", "jax", "ncnn", "ctranslate2", "_tools"}


@pytest.mark.slow
def test_a_run_writes_a_line_a_pair_which_the_table_shows(tmp_path: Path) -> None:
    out = tmp_path / "engines.jsonl"
    chosen = [str(out), "--engine", "onnxruntime", "--way", "float32", "--network", "cnn"]
    runner.run(chosen)
    runner.run(chosen)  # which finds the line, and runs nothing
    (line,) = map(json.loads, out.read_text().splitlines())
    assert (line["verdict"], line["unit"], line["declared"]) == ("rounding", "float32", "float32")
    assert 0.1 < line["ratio"] < 1.2
    assert f"| onnxruntime {line['version']} | float32 | cnn |" in rewritten(TABLES, [line])


def test_an_engine_that_is_not_installed_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    runner.run([str(tmp_path / "none.jsonl"), "--engine", "openvino"])
    assert "openvino is left out" in capsys.readouterr().err
    assert not (tmp_path / "none.jsonl").exists()


def test_the_page_has_the_tables_of_the_lines() -> None:
    assert rewritten(TABLES, list(runner.lines(PAGE.with_name("engines.jsonl")).values())) == TABLES
    lines = PAGE.with_name("functions.jsonl").read_text(encoding="utf-8").splitlines()
    assert between(TABLES, "functions", "\n".join(functions.rows(map(json.loads, lines)))) == TABLES


def test_a_table_says_why_an_engine_could_not_run() -> None:
    about = {"engine": "x", "version": "1", "way": "bf16", "network": "cnn", "fault": "", "why_not": "it has none"}
    assert "- x 1, bf16 (cnn): it has none." in rewritten(TABLES, [about])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["TF32 products", "bfloat16 products"])
def test_an_engine_s_unit_is_found_and_no_bug_is_explained_by_it(way: str, tmp_path: Path) -> None:
    own = case("cnn")
    unit = "TF32 or float16 products" if way.startswith("TF32") else way
    honest = ported("emulated", own.network, own.inputs, way, tmp_path)
    found = judged(own.network, lambda x: honest(x)[0], own.inputs)
    assert (found.verdict, found.unit) == ("coarser rounding", unit)
    wrong = ported("emulated", planted(own, "eps", 10, unit)[0], own.inputs, way, tmp_path)
    assert judged(own.network, lambda x: wrong(x)[0], own.inputs).verdict == "not rounding"


def test_an_engine_gives_the_results_of_modules_and_they_are_recorded(tmp_path: Path) -> None:
    own = case("cnn")
    names = modules(own.network)
    values = ported("emulated", Tapped(own.network, names).eval(), own.inputs, "TF32 products", tmp_path)(own.inputs)
    assert torch.equal(values[1 + names.index("head")], values[0])
    assert inside(own.network, values, names, own.inputs, "float32").where[0].startswith("`stem.0`")


@pytest.mark.parametrize(
    ("network", "fault"),
    [(name, fault) for name in ("cnn", "vit", "llama") for fault in FAULTS if FAULTS[fault].fits(case(name).network)],
)
def test_a_fault_is_as_large_as_was_asked_for(network: str, fault: str) -> None:
    own = case(network)
    times = 1 if fault == "RoPE" else 10  # whose angles are wrong by any amount no further on
    wrong, _ = planted(own, fault, times, "bfloat16 products")
    given = (own.inputs.double() if own.inputs.is_floating_point() else own.inputs,)
    found = wrong.double()(*given) - case(network).network.double()(*given)
    assert float(found.square().mean().sqrt()) == pytest.approx(times * _noise(own), rel=0.05)


def _noise(own: Case) -> float:
    program = Program.of_run(own.network, (own.inputs,))
    truth = Lifted(program).outputs((own.inputs,), {})[""]
    unit = next(one for one in UNITS if one.name == "bfloat16 products")
    moved = Noisy(program, Noise(unit.precision, 0)).outputs((own.inputs,), {})[""]
    return float((moved - truth).square().mean().sqrt())


@pytest.mark.parametrize("name", ENGINES)
def test_a_port_says_which_units_it_declares_and_what_to_install(name: str) -> None:
    text = (Path(runner.__file__).parent / "ports" / f"{name}.py").read_text(encoding="utf-8")
    assert re.search(r'^PACKAGE = "', text, re.MULTILINE)
    declared = re.findall(r': "([^"]+)"', text.partition("DECLARED = {")[2].partition("}")[0])
    assert declared
    assert set(declared) <= {*(unit.name for unit in UNITS), "8 bits"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the exporter's
def test_recipes_run_where_their_engine_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    missing = set()
    for place, program in enumerate(re.findall(r"```python\n(.*?)```", RECIPES, re.DOTALL)):
        assert place == 0 or len([line for line in program.splitlines() if line]) <= 10  # the first makes the network
        try:
            exec(program, names)
        except ModuleNotFoundError as error:
            missing.add(str(error.name).partition(".")[0])
    said = capsys.readouterr().out
    assert missing <= {*PACKAGES, "my_port"}
    assert "Rounding" in said  # ONNX Runtime
    assert "Same bits" in said  # a file of torch's own outputs
