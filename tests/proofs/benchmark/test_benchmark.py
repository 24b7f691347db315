"""The benchmark measures what it says, compares it with what it says, and never judges what it did not measure."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConvSpec
from conv2attn.convert.attention.layer import DEFAULT_MEMORY_LIMIT
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.size import Size
from conv2attn.proofs.benchmark import tables
from conv2attn.proofs.benchmark.candidates import (
    CANDIDATES,
    DENSE,
    LITERAL,
    Candidate,
    reference_output,
)
from conv2attn.proofs.benchmark.cases import Case, Regime
from conv2attn.proofs.benchmark.measure import CPU, Settings, measure, peak_bytes
from conv2attn.proofs.benchmark.results import Measurement, Phase, Row, summarise
from conv2attn.proofs.benchmark.rows import measure_network
from conv2attn.proofs.benchmark.run import Benchmark, measurements, run_benchmark
from conv2attn.proofs.benchmark.tables import (
    TABLES,
    BenchmarkLayer,
    ladder_layers,
)
from tests.command import Run

LAYERS = [
    BenchmarkLayer("plain", ConvSpec(3, 5, (3, 3), padding=(1, 1)), Size(6, 9)),
    BenchmarkLayer("strided", ConvSpec(4, 2, (3, 2), stride=(2, 1), padding=(0, 1), bias=False), Size(9, 7)),
    BenchmarkLayer("single", ConvSpec(4, 6, (1, 1), stride=(2, 2)), Size(7, 5)),
    BenchmarkLayer("depthwise", ConvSpec(4, 4, (3, 3), padding=(1, 1), groups=4), Size(8, 5)),
]


# The tables


@pytest.mark.parametrize(
    ("table", "convolutions", "depthwise", "gmacs"), [("resnet50", 53, 0, 4.09), ("mobilenetv2", 52, 17, 0.30)]
)
def test_a_networks_table_holds_all_its_convolutions(
    table: str, convolutions: int, depthwise: int, gmacs: float
) -> None:
    layers = TABLES[table]()
    macs = [
        layer.count * math.prod(layer.spec.output_size(layer.size)) * math.prod(layer.spec.weight_shape)
        for layer in layers
    ]
    assert sum(layer.count for layer in layers) == convolutions
    assert sum(layer.count for layer in layers if layer.is_depthwise) == depthwise
    assert round(sum(macs) / 1e9, 2) == gmacs
    assert len({(layer.spec, layer.size) for layer in layers}) == len(layers)


# What the candidates compute


def case_of(layer: BenchmarkLayer, dtype: torch.dtype = torch.float64) -> Case:
    like = torch.empty(0, dtype=dtype)
    return Case.draw(layer, batch=3, seed=5, like=like, memory_limit=DEFAULT_MEMORY_LIMIT, limit_flops=math.inf)


def rounding_bound(case: Case, regime: Regime) -> float:
    """How far apart two ways to compute a layer can be, whatever its heads.

    A computed score errs by at most 6 u times alpha (|delta| + |Delta|)^2; that makes a probability err by twice as
    much, relatively. The rest is a quotient of exponentials, and sums over keys, heads and channels.
    """
    layer, grid = case.attention(regime, LITERAL), case.layer.spec.padded_size(case.layer.size)
    reach = math.hypot(*grid) + float(layer.centers.norm(dim=1).max())
    scores = 2 * 6 * float(layer.alpha.max()) * reach**2
    terms = math.ceil(scores) + 8 * EXP_ULPS + (6 + layer.num_heads) * math.prod(grid) + case.layer.spec.in_channels
    scale = float(case.x.abs().max() * layer.weight.abs().sum((1, 2, 3)).max()) + 1
    return 2 * gamma(terms, unit_roundoff(case.x.dtype)) * scale


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_every_candidate_computes_its_regimes_layer(candidate: Candidate) -> None:
    for layer in LAYERS:
        case = case_of(layer)
        if candidate.refusal(case) is not None:
            assert (candidate.method, layer.name) == (DENSE, "depthwise")
            continue
        error = (candidate.build(case).function(case.x)[:1] - reference_output(candidate.regime, case)).abs().max()
        assert error <= rounding_bound(case, candidate.regime), layer.name


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_single_precision_stays_within_the_bound_that_is_shown(candidate: Candidate) -> None:
    case = case_of(LAYERS[0], torch.float32)
    output, bound = candidate.build(case).function(case.x)[:1], candidate.bound(case)
    error = (output.double() - reference_output(candidate.regime, case)).abs().max()
    assert (bound is None) == (candidate.regime is Regime.free)
    assert error <= (rounding_bound(case, candidate.regime) if bound is None else bound)


# How they are measured


def test_a_call_that_fails_has_a_reason_and_the_others_their_times() -> None:
    def refuse() -> None:
        raise ConversionError("not today")

    def exhaust() -> Tensor:
        return torch.empty(2**62, dtype=torch.uint8)

    found = measure({"fine": lambda: None, "refuses": refuse, "exhausts": exhaust}, Settings(rounds=5))
    assert isinstance(found["fine"], Measurement)
    assert found["fine"].ratio == 1
    assert found["refuses"] == "not today"
    assert str(found["exhausts"]).startswith("RuntimeError: ")


def test_peak_memory_counts_what_is_held_at_the_same_time() -> None:
    x = torch.ones(1000, dtype=torch.float64)

    def call() -> Tensor:
        y = x + 1  # 8000 bytes
        z = (y * 2).sum()  # 8000 more for a moment, then 8
        return y + z  # another 8000, when y * 2 is gone

    assert 16000 <= peak_bytes(call, device=CPU) <= 16000 + 1024
    assert peak_bytes(lambda: None, device=CPU) == 0


# What comes out


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    """Two small ladders' worth, forward and backward."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "ladder", lambda: ladder_layers((6, 10)))
        settings = Settings(rounds=5, batch=2, backward=True, limit_flops=1e7, threads=1)
        advanced: list[int] = []
        found = run_benchmark(["ladder"], settings, progress=advanced.append)
        assert sum(advanced) == len(measurements(["ladder"], settings))
    return found


def test_a_run_has_a_row_for_each_layer_phase_and_candidate(benchmark: Benchmark) -> None:
    expected = itertools.product((Phase.forward, Phase.training), ("6x6", "10x10"), [c.name for c in CANDIDATES])
    assert [(row.phase, row.layer, row.candidate) for row in benchmark.rows] == list(expected)
    assert all((row.measurement is None) != (row.reason is None) for row in benchmark.rows)
    assert {row.candidate for row in benchmark.rows if row.reason} == {"soft literal", "free SDPA", "exact sdpa"}
    for row in benchmark.rows:
        measured = row.measurement is not None and row.phase is Phase.forward
        assert (row.error is not None) == measured
        assert row.bound is None or row.error is None or row.error <= row.bound


def row(candidate: str, ratio: float | None, **changes: Any) -> Row:
    """A made-up row of ResNet-50's table; a ratio of 1 is 2 ms."""
    measurement = None if ratio is None else Measurement((2e-3 * ratio,) * 5, (ratio,) * 5, 2**20)
    place: dict[str, Any] = {"table": "resnet50", "layer": "a", "geometry": "", "size": Size(1, 1), "batch": 1}
    what: dict[str, Any] = {"kind": "dense", "count": 1, "phase": Phase.forward, "candidate": candidate}
    return Row(**(place | what | {"measurement": measurement} | changes))


def test_means_count_each_layer_as_often_as_the_network_has_it() -> None:
    (summary,) = summarise([row("a", 0.97, count=3), row("a", 1.16, layer="b"), row("a", None, layer="c")])
    assert math.isclose(summary["mean"], (0.97**3 * 1.16) ** 0.25)
    assert (summary["measured"], summary["layers"], summary["worst"]) == (4, 5, 1.16)


def small_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3), nn.AdaptiveAvgPool2d(1))


def test_a_network_is_measured_beside_its_conversions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.NETWORKS, "small", small_network)
    settings = Settings(rounds=5, batch=2, backward=True)
    found = list(measure_network("small", settings, size=Size(9, 7)))
    assert {(row.layer, row.geometry) for row in found} == {("small", "2 convolutions")}
    names = ("CNN", "converted", "converted, soft", "converted, soft, with content")
    expected = [*itertools.product((Phase.forward, Phase.training), names)]
    expected += [(Phase.conversion, "copy.deepcopy"), (Phase.conversion, "convert_model")]
    assert [(row.phase, row.candidate) for row in found] == expected
    assert all(row.measurement is not None for row in found)


# The plot


# The command


@pytest.fixture
def bench(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``conv2attn bench`` on a tiny ladder."""
    monkeypatch.setitem(TABLES, "ladder", lambda: ladder_layers((6, 10)))
    return partial(run, "bench", "--rounds", "5", "--batch", "1", "--threads", "1")


def test_the_command_prints_tables_verdicts_machine_and_seed(bench: Run) -> None:
    code, out, err = bench("--table", "ladder", "--seed", "7", "--plot", "a.svg", "--markdown", "b.md")
    assert (code, err) == (0, "")
    for word in ("error / bound", "10x10", *(c.name for c in CANDIDATES), "Seed: 7", "1 threads"):
        assert word in out
    drawn = {text.text for text in ET.parse("a.svg").getroot().iter("{http://www.w3.org/2000/svg}text")}
    assert {candidate.name for candidate in CANDIDATES} <= drawn
    once = Path("b.md").read_text(encoding="utf-8")
    assert bench("--table", "ladder", "--markdown", "b.md").code == 0
    twice = Path("b.md").read_text(encoding="utf-8")
    assert twice.startswith(once)
    assert twice.count("\n## ") == 1


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, "the tables are resnet50, mobilenetv2, ladder, positions, content, network", ("--table", "vgg")),
        (2, "a plot shows the table ladder", ("--table", "resnet50", "--plot", "a.svg")),
        (3, "the device 'meta' cannot be used", ("--device", "meta")),
        (3, "ends in .svg", ("--plot", "a.png")),
    ],
)
def test_a_run_that_cannot_succeed_is_refused_before_it_starts(
    bench: Run, code: int, words: str, arguments: tuple[str, ...]
) -> None:
    found, out, err = bench(*arguments)
    assert (found, out) == (code, "")
    assert words in " ".join(err.split())
    assert list(Path().iterdir()) == []
