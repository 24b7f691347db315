"""``benchmarks/vits.py``: rows of one size, shares at taps, trainings that go on, a criterion that is arithmetic."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from tests.libraries import imported

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def vits(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("vits")


@pytest.fixture
def starts(vits: ModuleType) -> ModuleType:
    return importlib.import_module("started_vits")


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Without ``vits``, whose sets need packages that are not installed beside the other libraries."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("vit_shares")


@pytest.fixture
def plan(vits: ModuleType) -> ModuleType:
    return importlib.import_module("vit_plan")


@pytest.fixture
def table(vits: ModuleType) -> ModuleType:
    return importlib.import_module("vit_table")


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def scored(job: Any) -> dict[str, Any]:
    """A line of a training that was not run: rates near 8e-3 are best on textures, 1e-3 elsewhere."""
    peak = 8e-3 if job.task == "textures" else 1e-3
    place = 0.05 * (len(job.row) % 4) + 0.001 * (job.seed**2 % 3) + 0.0001 * len(str(job.numbers))
    score = 0.5 + place - 0.1 * abs(math.log2(job.rate / peak))
    shares = dict.fromkeys(("least", "bound", "least_ratio", "mean", "trained"), 1.0)
    return dict(job._asdict()) | {
        "validation": score,
        "test": score,
        "seconds": 1.0,
        "machine": "none",
        "shares": shares,
    }


@pytest.mark.parametrize("patch", [2, 6])
def test_all_rows_have_as_many_parameters(patch: int, starts: ModuleType) -> None:
    shape = starts.Shape(patch, 10)
    wanted = starts.size(starts.ViT(shape))
    for row in ("convit", "stem", "cnn"):  # the others change numbers of the same ViT
        _, make, numbers, tries = starts.ROWS[row]
        for change in ({}, *tries):
            assert starts.size(make(shape, **numbers | change)) == pytest.approx(wanted, rel=0.025), (row, change)


@pytest.mark.parametrize("sharpness", [1.0, 4.0])
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0])
def test_heads_keep_the_claims_share_at_their_taps(
    size: float, sharpness: float, starts: ModuleType, double: None
) -> None:
    torch.manual_seed(2)
    network = starts.taps(starts.Shape(2, 10), sharpness=sharpness, blocks=3, values=0.06)
    images = size * torch.randn(2, 1, 16, 16)
    found, bound = starts.shares(network, images, sharpness=sharpness, blocks=3)
    per_head = [int((starts.targets(shift) >= 0).sum()) for shift in starts.SHIFTS]
    assert len(found) == 3 * 2 * sum(per_head)
    assert bool((found * (1 + 2.0**-40) >= bound).all())  # in float64, whose scores err by some 2^-50 of their size
    if size == 0.0:
        first = slice(2 * sum(per_head))  # deviations differ little in the first block: the bound is nearly reached
        assert float((found / bound)[first].max()) < 1.01


@pytest.mark.parametrize("sharpness", [2.0, 30.0])
def test_a_block_with_a_convolutions_values_convolves_layer_norms_output(
    sharpness: float, starts: ModuleType, measure: ModuleType, double: None
) -> None:
    """The difference is at most sum_h (1 - share_h) max_k |v_h(k) - v_h(tap)|, beside rounding.

    Rounding: scores that are off by at most E change probabilities by the factor exp(2 E) at most, and with them each
    head's output by expm1(2 E) max|v|. Sums of 144 products for the values and of as many for the outputs, one over 64
    keys and the convolution's own over 144 products are each off by at most their number of terms, times u, times the
    sum of sizes; 600 exceeds all terms together.
    """
    torch.manual_seed(4)
    network = starts.taps(starts.Shape(2, 10), sharpness=sharpness, blocks=1, values=0.06)
    attention, norm = network.attention(0), network.blocks[0].norm1
    weight = torch.randn(7, 16, 3, 3)
    starts.with_values(attention, weight)
    x = network.tokens(0.3 * torch.randn(2, 1, 16, 16)).detach()
    content = slice(starts.PLACES, starts.PLACES + 16)
    with torch.no_grad():
        n = norm(x)
        found = attention(n)[..., starts.PLACES : starts.PLACES + 7]
    wanted = nn.functional.conv2d(n[..., content].transpose(1, 2).unflatten(2, (8, 8)), weight, padding=1)
    deviations = (x.var(-1, correction=0) + norm.eps).sqrt()
    inside = torch.ones(8, 8).flatten().bool()
    allowed = torch.zeros(2, 64, 7)
    unit = torch.finfo(torch.float64).eps / 2
    query, key, _ = attention.qkv.weight.detach().view(3, 9, 16, 144)
    for head, shift in enumerate(starts.SHIFTS):
        inside &= starts.targets(shift) >= 0
        tap = weight[:, :, shift[0] + 1, shift[1] + 1]
        values, sizes = n[..., content] @ tap.T, n[..., content].abs() @ tap.abs().T  # [batch, keys, 7]
        apart = (values[:, None] - values[:, starts.targets(shift), None]).abs().amax(2)
        share = measure.bounds(x, deviations, shift, head_dim=16, sharpness=sharpness)
        error = measure.score_error(x, deviations, query[head], key[head]).amax(-1)
        rounding = torch.expm1(2 * error)[..., None] + 600 * unit
        allowed += (1 - share)[..., None] * apart + rounding * sizes.amax(1, keepdim=True)
    assert int(inside.sum()) == 36
    wanted = wanted.flatten(2).transpose(1, 2)
    difference = (found - wanted).abs()[:, inside]
    assert bool((difference <= allowed[:, inside]).all())
    if sharpness > 2:
        assert float(allowed[:, inside].max()) < 1e-6 * float(wanted.abs().max())
    else:
        assert 1e-3 < float(difference.max()) < float(allowed[:, inside].max()) < float(wanted.abs().max())


def test_the_page_keeps_the_section_of_other_libraries(table: ModuleType) -> None:
    before = f"old\n\n{table.SHARES}\n\nkept\n"
    assert table.page([], before).endswith(f"\n\n{table.SHARES}\n\nkept\n")
    assert table.SHARES not in table.page([], "old\n")


@pytest.mark.libraries
@pytest.mark.parametrize(
    "name", ["vit_medium_patch16_gap_240", "vit_base_patch14_reg4_dinov2", "vit_b_32", "DeiT", "Dinov2"]
)
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_heads_of_other_libraries_keep_the_claims_share(
    name: str, size: float, measure: ModuleType, double: None
) -> None:
    """Without tokens beside the patches, with registers, LayerScale, a distillation token."""
    (row,) = (each for each in measure.ROWS if each.name == name)
    parts, (found,) = measure.measured(row, imported, sizes=(size,))
    assert len(found) == measure.DEPTH * parts.blocks[0].count
    assert all(head.holds for head in found)
    assert all(float(head.slack.min()) > 1 - 1e-6 for head in found)  # of rounding


def test_structured_heads_look_at_their_taps_more_than_elsewhere(starts: ModuleType) -> None:
    torch.manual_seed(0)
    row = starts.ROWS["structured"]
    network = row.make(starts.Shape(2, 10), **row.numbers)
    tokens = network.tokens(torch.rand(2, 1, 16, 16))
    probabilities = network.attention(0).probabilities(network.blocks[0].norm1(tokens)).detach()
    for head, shift in enumerate(starts.SHIFTS):
        target = starts.targets(shift)
        (queries,) = (target >= 0).nonzero(as_tuple=True)
        at_tap = probabilities[:, head, queries, target[queries]].mean()
        assert float(at_tap) > 10 / starts.GRID**2


def test_gated_heads_look_at_their_taps_most(starts: ModuleType) -> None:
    network = starts.convit(starts.Shape(2, 10), strength=1.0, local=3, std=0.02)
    probabilities = network.attention(1).probabilities(torch.zeros(1, starts.GRID**2, starts.WIDTH))
    assert torch.allclose(probabilities.sum(-1), torch.ones(()))
    for head, shift in enumerate(starts.SHIFTS):
        target = starts.targets(shift)
        inside = target >= 0
        assert torch.equal(probabilities[0, head].argmax(-1)[inside], target[inside])


@pytest.mark.slow
def test_every_row_trains_and_its_line_says_what_was_run(vits: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = importlib.import_module("vit_sets")
    train, *others = sets.shifted_digits(0)
    few = [sets.Part(*(each[:50] for each in train)), *(sets.Part(*(each[:10] for each in part)) for part in others)]
    monkeypatch.setitem(vits.TASKS, "digits", replace(vits.TASKS["digits"], parts=lambda seed: few))
    for row, each in vits.ROWS.items():
        job = vits.Job("digits", row, each.numbers, 1e-3, 0, 1)
        record = vits.train(job, steps=1)
        assert vits.Job(*(record[field] for field in vits.Job._fields)) == job
        assert 0 <= record["validation"] <= 1
        assert 0 <= record["test"] <= 1
        assert ("shares" in record) == (row == vits.THIS)


@pytest.mark.slow
def test_a_run_that_broke_off_goes_on_to_the_same_lines(
    vits: ModuleType, plan: ModuleType, table: ModuleType, tmp_path: Path
) -> None:
    class BrokenOffError(Exception):
        pass

    def breaking(job: Any) -> dict[str, Any]:
        if len(done) in (3, 70) and job not in seen:
            seen.append(job)
            raise BrokenOffError
        done.append(job)
        return scored(job)

    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    seen, done = list[Any](), list[Any]()
    assert vits.run(whole, minutes=math.inf, work=scored) == "All trainings ended."
    for _ in range(2):
        with pytest.raises(BrokenOffError):
            vits.run(broken, minutes=math.inf, work=breaking)
    vits.run(broken, minutes=math.inf, work=breaking)
    records = vits.read(whole)
    assert vits.read(broken) == records
    tuning = [record["row"] for record in records if record["task"] == "digits" and record["seed"] == plan.TUNING]
    assert {row: tuning.count(row) for row in vits.ROWS} == dict.fromkeys(vits.ROWS, plan.TRIES)
    rates = {record["rate"] for record in records if record["task"] == "textures" and record["seed"] == plan.TUNING}
    assert max(rates) == 2 * 8e-3  # the best one is no end
    found = table.scores(plan.finder(records))
    assert {len(by_seed) for by_row in found.values() for by_seed in by_row.values()} == {len(plan.SEEDS)}
    text = table.page(records)
    assert table.verdict(found)[1] in text
    assert "not run" not in text.lower()


def test_the_parts_of_a_texture_share_no_pixel(vits: ModuleType) -> None:
    sets = importlib.import_module("vit_sets")
    for name in sets.TEXTURES:
        parts = [sets.texture(name, part) for part in ("train", "validation", "test")]
        assert min(part.shape[1] for part in parts) >= 32
        assert sum(part.shape[1] for part in parts) <= sets._picture(name).shape[1]


def by_criterion(table: ModuleType, ahead: dict[tuple[str, str], float]) -> Any:
    """Judges scores in which the row leads by some number of standard errors: three if nothing else is said."""
    noise = [-0.02, -0.01, 0.0, 0.01, 0.02]
    error = math.sqrt(sum(each**2 for each in noise) / 4 / 5)
    found = {
        task: {
            row: {seed: 0.5 - ahead.get((task, row), 3.0) * error + noise[seed] * (row != "taps") for seed in range(5)}
            for row in table.ROWS
        }
        for task in table.TASKS
    }
    for task in table.TASKS:
        found[task]["taps"] = dict.fromkeys(range(5), 0.5)
    return found


@pytest.mark.parametrize(
    ("ahead", "public"),
    [
        ({}, True),
        ({("cells", "mimetic"): 1.9}, True),  # textures are enough
        ({("cells", "mimetic"): 1.9, ("textures", "sines"): 1.9}, False),  # not the same real set
        ({("digits", "default"): 1.9}, False),
        ({("cells", "structured"): -1.9}, True),
        ({("cells", "structured"): -2.1}, False),
        ({("digits", "cnn"): -9.0}, True),
    ],
)
def test_the_criterion_is_two_standard_errors(
    ahead: dict[tuple[str, str], float], public: bool, table: ModuleType
) -> None:
    found = by_criterion(table, ahead)
    assert table.verdict(found)[0] is public
    del found["cells"]["structured"][4]
    assert table.verdict(found)[0] is None
