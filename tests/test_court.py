"""The court: every case says what it is, ten of them run, and roundings of other machines are exact."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

COURT = Path(__file__).parents[1] / "benchmarks" / "court"
TOLD = ["executorch_alpha", "onnx_resize_one", "cuda_tf32_rotation", "mps_linear_strides", "timm_bessel"]
TOLD += ["unsloth_softcap", "gpt2_cross_mask", "jax_tpu_rows", "megatron_gelu", "keras_bert_eps"]


@pytest.fixture(scope="module")
def court() -> Iterator[Any]:
    kept = set(sys.modules)
    sys.path.insert(0, str(COURT))
    spec = spec_from_file_location("benchmarks_court", COURT / "court.py")
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    yield found
    sys.path[:] = [path for path in sys.path if path != str(COURT)]
    for name in set(sys.modules) - kept:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(COURT)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def truth(court: Any) -> Any:
    return importlib.import_module("truth")


def test_every_case_has_a_thread_a_kind_and_a_truth(court: Any, truth: Any) -> None:
    cases = {name: court.case(name) for name in court.names()}
    assert len(cases) >= 100
    assert {case.kind for case in cases.values()} == set(truth.KINDS)
    for name, case in cases.items():
        assert case.thread.startswith("https://github.com/"), name
        assert all((case.question, case.said, case.read)), name
        if isinstance(case.truth, truth.Bug):
            assert case.truth.operation, name
            assert case.truth.cause, name
            assert case.truth.where, name


def test_an_answer_is_scored_by_the_rule(truth: Any) -> None:
    bug, fine = truth.Bug("eps", "norm", ("eps",)), truth.Rounding("order of sums")
    coarse = truth.Rounding("the GPU's products", "tf32")
    amplified = truth.Rounding("the inverse of a singular matrix", is_amplified=True)

    def scores(answer: str, unit: str = "") -> list[str]:
        said = truth.Said(answer, "", unit)
        return [truth.score(each, said) for each in (bug, fine, coarse, amplified, truth.Open("nobody knows"))]

    assert scores("accept") == ["miss", "right", "right", "right", "not scored"]
    assert scores("reject") == ["right", "false alarm", "false alarm", "false alarm", "not scored"]
    assert scores("undecided") == ["undecided", "undecided", "undecided", "right", "not scored"]
    assert scores("accept", "tf32") == ["miss", "undecided", "right", "undecided", "not scored"]


@pytest.mark.parametrize("name", TOLD)
def test_a_case_builds_two_sides_that_differ_and_ours_is_right(court: Any, name: str) -> None:
    heard = court.heard(name)
    assert heard["difference"] > 0
    assert list(heard["said"]) == [*court.OTHERS, court.OURS]
    assert heard["said"][court.OURS]["score"] == "right"


def test_emulated_roundings_are_those_of_the_machines(court: Any) -> None:
    units = importlib.import_module("units")
    x = torch.cat((torch.randn(10_000), torch.tensor([0.0, 1.0, -1.0, 1.00390625, 1.01171875])))  # two ties
    assert torch.equal(units.bfloat16(x), x.bfloat16().float())
    cut, floor = units.cut(x).float(), units.floor(x).float()
    assert bool((cut.abs() <= x.abs()).all())
    assert bool(((x - cut).abs() <= 2**-7 * x.abs()).all())
    assert bool((floor <= x).all())
    near = x.bfloat16()
    below = torch.nextafter(near, torch.full_like(near, -torch.inf))
    assert torch.equal(floor, torch.where(near.float() > x, below, near).float())
    assert torch.equal(units.tf32(x).view(torch.int32) & 0x1FFF, torch.zeros_like(x, dtype=torch.int32))
    assert bool(((x - units.tf32(x)).abs() <= 2**-11 * x.abs()).all())
